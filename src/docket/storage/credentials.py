"""Credentials for threads, from a provider that is made for the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from typing import Any, cast

from redis.credentials import CredentialProvider
from redis.exceptions import TimeoutError as RedisTimeoutError

Login = tuple[str] | tuple[str, str]

# For threads that have no deadline of their own.
USUAL_SECONDS = 2.0


class LoopCredentials(CredentialProvider):
    """Asks a provider that has `get_credentials_async` only, in the event loop, also for connections of threads.

    If the event loop does not answer in time, because a task blocks it, a thread gets the credentials that the provider gave
    last.
    """

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._last: Login | None = None

    async def get_credentials_async(self) -> Login:
        self._last = found = await self._provider.get_credentials_async()
        return found

    def get_credentials(self) -> Login:
        return self.within(USUAL_SECONDS)

    def within(self, seconds: float) -> Login:
        """Raises a redis-py TimeoutError if the event loop does not answer and there are no earlier credentials."""
        if threading.get_ident() == self._loop_thread or self._loop.is_closed():
            return self._earlier()
        asked = asyncio.run_coroutine_threadsafe(self.get_credentials_async(), self._loop)
        try:
            return asked.result(seconds)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            return self._earlier()

    def _earlier(self) -> Login:
        if self._last is None:
            raise RedisTimeoutError("the credential provider does not answer: its event loop is blocked or closed")
        return self._last


class TimedCredentials(CredentialProvider):
    """The same for one connection, within so many seconds."""

    def __init__(self, credentials: LoopCredentials, seconds: float) -> None:
        self._credentials = credentials
        self._seconds = seconds

    def get_credentials(self) -> Login:
        return self._credentials.within(self._seconds)


def for_all_connections(provider: Any) -> Any:
    """The provider itself if threads can ask it, else one that they can ask."""
    own = getattr(cast(Any, type(provider)), "get_credentials", CredentialProvider.get_credentials)
    return LoopCredentials(provider) if own is CredentialProvider.get_credentials else provider
