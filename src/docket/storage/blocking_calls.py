"""Commands of threads, and the typed errors of all commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError, ResponseError

from docket.errors import NotOpen

from .connections import run_script
from .faults import SERVER_ERRORS, ServerUnavailable, translate
from .keys import Keys
from .permissions import refusal
from .scripts import load


class BlockingCalls:
    """The part of a server for code outside the event loop."""

    def __init__(self, shown_url: str, credential_provider: CredentialProvider | None, user: str | None) -> None:
        self.shown_url = shown_url
        self.credential_provider = credential_provider
        # Entered, greeted and not closed.
        self._is_usable = False
        self._closed = False
        # For the explanation of a refusal: the user, and the keys of the docket.
        self._user = "of the credential provider" if credential_provider is not None else repr(user or "default")
        self.keys: Keys | None = None

    def run_blocking(self, client: Any, script: str, keys: Sequence[bytes], *args: bytes | str) -> Any:
        """Runs a script on a client of `threaded_client`, for code outside the event loop."""
        if self._closed:
            raise self._not_open()
        try:
            return run_script(client, load(script), keys, args)
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def unblock(self, client: Any, id: int) -> None:
        """Ends the blocking read of another connection, as if its time were over, if the server
        permits that."""
        try:
            client.execute_command("CLIENT", "UNBLOCK", id)
        except ResponseError:
            # The server does not permit it. The read ends by itself.
            return
        except SERVER_ERRORS as error:
            raise self.explain(error) from error

    def explain(self, error: BaseException) -> BaseException:
        """The typed error for a failed call. After the docket is closed that is NotOpen; every
        other error may be transient."""
        if self._closed:
            return self._not_open()
        if self._is_usable and self.credential_provider is not None and isinstance(error, AuthenticationError):
            # Credentials that are rotated may be revoked between the provider's answer and the
            # login. The next connection calls the provider again.
            return ServerUnavailable(f"{self.shown_url}: {error}")
        return refusal(error, self.shown_url, self._user, self.keys) or translate(error, self.shown_url) or error

    def _not_open(self) -> NotOpen:
        return NotOpen(f"{self.shown_url}: the docket was closed")
