"""Resolves host names in a thread of docket's own. The last known addresses are used if that
fails."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import threading
from concurrent.futures import Future

from docket._aio import start_in_thread

Name = tuple[str, int]
# Re-entrant, because the callback of a lookup that is already done runs at once.
_lock = threading.RLock()
_under_way: dict[Name, Future[list[str]]] = {}
_last_known: dict[Name, list[str]] = {}
_MOST_NAMES = 1000
# After this time the last known addresses are used.
PATIENCE_SECONDS = 2.0


def _begin_in_forked_child() -> None:
    """The threads of the parent do not exist here: their lookups never end, and one of them may
    have held the lock."""
    global _lock
    _lock = threading.RLock()
    _under_way.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_in_forked_child)


async def addresses(host: str, port: int) -> list[str]:
    """The addresses to try, in order. Raises OSError if there are none."""
    if _is_address(host):
        return [host]
    resolving = asyncio.wrap_future(_resolve_once(host, port))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS if (host, port) in _last_known else None):
            return await resolving
    except OSError as error:
        return _fallback(host, port, error)


def addresses_within(host: str, port: int, seconds: float) -> list[str]:
    """The addresses to try, in order, for code outside of the event loop. Raises TimeoutError, an
    OSError, if the lookup takes too long."""
    if _is_address(host):
        return [host]
    try:
        return _resolve_once(host, port).result(max(seconds, 0.0))
    except OSError as error:
        return _fallback(host, port, error)


def _resolve_once(host: str, port: int) -> Future[list[str]]:
    """One lookup of a name at a time, for any number of callers: a silent resolver occupies one
    thread."""
    name = (host, port)
    with _lock:
        found = _under_way.get(name)
        if found is None:
            found = _under_way[name] = start_in_thread(_resolve, host, port)
            found.add_done_callback(lambda future: _note(name, future))
    return found


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _note(name: Name, future: Future[list[str]]) -> None:
    with _lock:
        _under_way.pop(name, None)
        if future.exception() is None:
            if len(_last_known) >= _MOST_NAMES:
                _last_known.clear()
            _last_known[name] = future.result()


def _fallback(host: str, port: int, error: OSError) -> list[str]:
    """If the resolver fails or is silent, the worker must still reach a server whose address has
    not changed."""
    known = _last_known.get((host, port))
    if known is None:
        raise error
    return known


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
