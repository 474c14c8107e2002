"""The blocking client of a caller that sends now and then, from its own thread."""

from __future__ import annotations

import select
import time
from typing import Any

from .connections import ThreadedClient

# After a pause this long the caller opens a new connection: a firewall may have dropped the old one
# silently.
_LONGEST_IDLE_SECONDS = 60.0


class CallerClient:
    """Sends commands, one at a time. It notices before a command if the server has closed the
    connection meanwhile: after the command, nobody could tell whether it arrived."""

    def __init__(self, client: ThreadedClient) -> None:
        self._client = client
        self._used_at = 0.0

    def execute_command(self, *words: Any) -> Any:
        """Raises the errors of redis-py. After any error the next command opens a new
        connection."""
        now = time.monotonic()
        if now - self._used_at > _LONGEST_IDLE_SECONDS or self._has_news():
            self._client.close()
        self._used_at = now
        try:
            return self._client.execute_command(*words)
        except BaseException as error:
            if not isinstance(error, Exception):
                # The caller was interrupted, and the answer is still to come.
                self._client.close()
            raise

    def close(self) -> None:
        self._client.close()

    def _has_news(self) -> bool:
        """Whether there is something to read. No answer is open, so that is the end of the
        connection."""
        socket = self._client.open_socket
        if socket is None:
            return False
        poll = select.poll()
        poll.register(socket, select.POLLIN)
        return bool(poll.poll(0))
