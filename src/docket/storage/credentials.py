"""A user's credential provider, asked so that it can neither block nor hang a docket."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

from redis import credentials as redis_credentials
from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from . import threads

Login = tuple[str] | tuple[str, str]

# For threads that have no deadline of their own.
USUAL_SECONDS = 2.0
# A provider that hangs is asked again and again, and must not use up threads: after so many calls
# that have not returned the pauses between two calls double, up to a minute.
_MOST_HUNG = 4
_LONGEST_PAUSE = 60.0
# Since redis-py 5.3.
_Streaming: Any = getattr(redis_credentials, "StreamingCredentialProvider", None)


class BoundedCredentials(CredentialProvider):
    """Asks a provider in the event loop or in a thread,
    as it can be asked, for connections of either kind.

    A call that takes longer than `seconds` is given up, with an error of redis-py that counts as an
    outage. The next connection asks again. If the event loop does not answer a thread in time,
    because a task blocks it, the thread gets the credentials that the provider gave last.
    """

    def __init__(self, provider: Any, seconds: float) -> None:
        self._provider = provider
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._last: Login | None = None
        # Calls that have not returned, when the last one began,
        # and whether the one that ended last gave an answer.
        self._hung = 0
        self._works = True
        self._began_at = 0.0
        self._lock = threading.Lock()
        self.in_threads: bool = _has_own(provider, "get_credentials")
        self.in_loops: bool = _has_own(provider, "get_credentials_async")

    async def get_credentials_async(self) -> Login:
        """For connections of the event loop."""
        if self.in_loops:
            found = await self._answer(self._begin_in_loop())
            if found is not None:
                return found
            self.in_loops = False
        found = await self._answer(asyncio.wrap_future(self._begin_in_thread()))
        if found is None:
            raise RedisConnectionError(f"{type(self._provider).__name__} implements no method that gives credentials")
        return found

    def get_credentials(self) -> Login:
        """For connections of threads."""
        return self.within(USUAL_SECONDS)

    def within(self, seconds: float) -> Login:
        if threading.get_ident() == self._loop_thread:
            return self._earlier()
        if self.in_threads:
            found = self._answer_in_thread(min(seconds, self._seconds))
            if found is not None:
                return found
            self.in_threads = False
        if self._loop.is_closed():
            return self._earlier()
        asked = asyncio.run_coroutine_threadsafe(self.get_credentials_async(), self._loop)
        try:
            return asked.result(seconds)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            return self._earlier()

    async def _answer(self, asking: asyncio.Future[Login]) -> Login | None:
        """None if the method is not implemented."""
        try:
            await asyncio.wait([asking], timeout=self._seconds)
        finally:
            if not asking.done():
                # A call that ignores its cancel is left to itself: nobody waits for it.
                asking.cancel()
        return self._found(asking)

    def _answer_in_thread(self, seconds: float) -> Login | None:
        asking = self._begin_in_thread()
        concurrent.futures.wait([asking], seconds)
        return self._found(asking)

    def _found(self, asking: asyncio.Future[Login] | concurrent.futures.Future[Login]) -> Login | None:
        self._works = asking.done() and not asking.cancelled()
        if not self._works:
            raise RedisTimeoutError(f"the credential provider has not answered within {self._seconds:g} s")
        error = asking.exception()
        if error is None:
            self._last = asking.result()
            return self._last
        if isinstance(error, NotImplementedError):
            return None
        if isinstance(error, (RedisError, OSError)):
            raise error
        raise RedisConnectionError(f"the credential provider failed: {type(error).__name__}: {error}") from error

    def _begin_in_loop(self) -> asyncio.Future[Login]:
        self._begin()
        asking = asyncio.ensure_future(_in_loop(self._provider.get_credentials_async))
        asking.add_done_callback(self._ended)
        return asking

    def _begin_in_thread(self) -> concurrent.futures.Future[Login]:
        self._begin()
        asking = threads.start(self._provider.get_credentials)
        asking.add_done_callback(self._ended)
        return asking

    def _begin(self) -> None:
        with self._lock:
            now = time.monotonic()
            extra = self._hung - _MOST_HUNG
            if not self._works and extra >= 0 and now < self._began_at + min(2.0**extra, _LONGEST_PAUSE):
                raise RedisTimeoutError(f"{self._hung} calls of the credential provider have not returned")
            self._began_at = now
            self._hung += 1

    def _ended(self, asking: asyncio.Future[Login] | concurrent.futures.Future[Login]) -> None:
        with self._lock:
            self._hung -= 1
        if not asking.cancelled():
            # Of a call that was given up nobody asks for the outcome.
            asking.exception()

    def _earlier(self) -> Login:
        if self._last is None:
            raise RedisTimeoutError("the credential provider does not answer: its event loop is blocked or closed")
        return self._last


class TimedCredentials(CredentialProvider):
    """The same for one connection, within so many seconds."""

    def __init__(self, credentials: BoundedCredentials, seconds: float) -> None:
        self._credentials = credentials
        self._seconds = seconds

    def get_credentials(self) -> Login:
        return self._credentials.within(self._seconds)


def bounded(provider: Any, seconds: float) -> BoundedCredentials:
    """The provider as connections ask it. Of a provider that
    streams, redis-py still hears about new credentials."""
    if _Streaming is None or not isinstance(provider, _Streaming):
        return BoundedCredentials(provider, seconds)
    listening = {name: staticmethod(getattr(provider, name)) for name in ("on_next", "on_error", "is_streaming")}
    return type("StreamingBoundedCredentials", (BoundedCredentials, _Streaming), listening)(provider, seconds)


async def _in_loop(ask: Callable[[], Awaitable[Login]]) -> Login:
    return await ask()


def _has_own(provider: Any, method: str) -> bool:
    default = getattr(CredentialProvider, method)
    return getattr(cast(Any, type(provider)), method, default) is not default
