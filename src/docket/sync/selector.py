"""The selector of the background event loop. A forked child gives up its copy of it."""

from __future__ import annotations

import os
import selectors
import threading
from collections.abc import Mapping
from typing import Any


class ForkableSelector(selectors.DefaultSelector):
    """A selector that a forked child can give up without touching the parent's connections.

    On Linux parent and child share one epoll instance: if the child removed a socket from it, the
    parent would never hear of that socket again. Objects of the inherited event loop do remove
    their sockets when Python collects them. TLS connections would even write a farewell.
    """

    _is_abandoned = False

    def abandon(self) -> None:
        """Called in a forked child. Closes the child's copies of the descriptors, at once and
        without a word to the server."""
        registered = [key.fd for key in super().get_map().values()]
        self._is_abandoned = True
        null = os.open(os.devnull, os.O_RDWR)
        for fd in registered:
            # Replaced, not closed: the number still belongs to an inherited object, which closes it
            # when it is collected.
            os.dup2(null, fd, inheritable=False)
        os.close(null)
        super().close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._is_abandoned:
            try:
                return super().select(timeout)
            except Exception:
                if not self._is_abandoned:
                    raise
        # The greenlets of gevent live on in a forked child, unlike threads. The event loop of the
        # parent must not go on there, nor end: Python would take the new one for ended, too.
        threading.Event().wait()
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {} if self._is_abandoned else super().get_map()

    def close(self) -> None:
        if not self._is_abandoned:
            super().close()
