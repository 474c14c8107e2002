"""Calls a user's credential provider so that it can neither block nor hang a docket."""

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

from docket._aio import start_in_thread

Login = tuple[str] | tuple[str, str]

# For threads without a deadline of their own.
USUAL_SECONDS = 2.0
# Each new connection calls the provider again, even if earlier calls hang. To save threads, after
# this many hanging calls the pauses between two calls double, up to a minute.
_MOST_HUNG = 4
_LONGEST_PAUSE = 60.0
# Since redis-py 5.3.
_Streaming: Any = getattr(redis_credentials, "StreamingCredentialProvider", None)


class BoundedCredentials(CredentialProvider):
    """Calls a provider in the event loop or in a thread, depending on its methods, for connections
    of either kind.

    A call that takes longer than `seconds` is abandoned with an error of redis-py that counts as an
    outage. The next connection calls again. If a task blocks the event loop, so that it does not
    answer a thread in time, the thread gets the credentials that the provider gave last.
    """

    def __init__(self, provider: Any, seconds: float) -> None:
        self._provider = provider
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._last: Login | None = None
        # The number of calls without a return, the start of the last call, and whether the call
        # that ended last gave an answer.
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
            raise RedisConnectionError(
                f"{type(self._provider).__name__} does not implement a method that returns credentials"
            )
        return found

    def get_credentials(self) -> Login:
        """For connections of threads."""
        return self.within(USUAL_SECONDS)

    def within(self, seconds: float) -> Login:
        if threading.get_ident() == self._loop_thread:
            return self._last_known()
        if self.in_threads:
            found = self._answer_in_thread(min(seconds, self._seconds))
            if found is not None:
                return found
            self.in_threads = False
        if self._loop.is_closed():
            return self._last_known()
        asked = asyncio.run_coroutine_threadsafe(self.get_credentials_async(), self._loop)
        try:
            return asked.result(seconds)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            return self._last_known()

    async def _answer(self, asking: asyncio.Future[Login]) -> Login | None:
        """None if the method is not implemented."""
        try:
            await asyncio.wait([asking], timeout=self._seconds)
        finally:
            if not asking.done():
                # A call that ignores its cancel goes on, and its result is ignored.
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
        asking = start_in_thread(self._provider.get_credentials)
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
            # Marks the error of an abandoned call as retrieved, so that asyncio does not log it.
            asking.exception()

    def _last_known(self) -> Login:
        if self._last is None:
            raise RedisTimeoutError("the credential provider does not answer: its event loop is blocked or closed")
        return self._last


class TimedCredentials(CredentialProvider):
    """The credentials of a provider for one connection, within `seconds`."""

    def __init__(self, credentials: BoundedCredentials, seconds: float) -> None:
        self._credentials = credentials
        self._seconds = seconds

    def get_credentials(self) -> Login:
        return self._credentials.within(self._seconds)


def bounded(provider: Any, seconds: float) -> BoundedCredentials:
    """Wraps a provider for docket's connections. redis-py still receives new credentials from a
    streaming provider."""
    if _Streaming is None or not isinstance(provider, _Streaming):
        return BoundedCredentials(provider, seconds)
    listening = {name: staticmethod(getattr(provider, name)) for name in ("on_next", "on_error", "is_streaming")}
    return type("StreamingBoundedCredentials", (BoundedCredentials, _Streaming), listening)(provider, seconds)


async def _in_loop(ask: Callable[[], Awaitable[Login]]) -> Login:
    return await ask()


def _has_own(provider: Any, method: str) -> bool:
    default = getattr(CredentialProvider, method)
    return getattr(cast(Any, type(provider)), method, default) is not default
