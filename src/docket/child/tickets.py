"""The tickets of runs that were sent ahead. A ticket is the number of a run, in a socket of which
the worker and the child both have the reading end. Whoever reads the ticket has the run."""

from __future__ import annotations

import socket

_TICKET = 8
# More than the tickets that a child ever has.
_ALL = 1 << 12


class Tickets:
    """The worker's side: it issues tickets, and takes them back."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)

    @property
    def reading(self) -> int:
        """The descriptor for the child."""
        return self._reading.fileno()

    def issue(self, number: int) -> None:
        self._writing.send(number.to_bytes(_TICKET, "little"))

    def take_back(self) -> set[int]:
        """The tickets that the child has not taken. It cannot take them any more."""
        data = _read(self._reading, _ALL)
        return {int.from_bytes(data[at : at + _TICKET], "little") for at in range(0, len(data), _TICKET)}

    def close(self) -> None:
        self._reading.close()
        self._writing.close()


class TicketReader:
    """The child's side: it takes the ticket of a run before it begins the run."""

    def __init__(self, descriptor: int) -> None:
        self._reading = socket.socket(fileno=descriptor)
        self._reading.setblocking(False)
        self._last = 0

    def take(self, number: int) -> bool:
        """Whether the run is the child's. A ticket of a later run is kept for that run."""
        while self._last < number:
            try:
                data = _read(self._reading, _TICKET)
            except OSError:
                return False
            if len(data) < _TICKET:
                return False
            self._last = int.from_bytes(data, "little")
        return self._last == number

    def let_go(self) -> None:
        """In a process that the function has forked."""
        self._reading.close()


def _read(reading: socket.socket, size: int) -> bytes:
    """Reads without waiting. The function may have made the descriptor blocking, and the processes
    share that setting: then only the flag keeps the worker from waiting for ever."""
    try:
        return reading.recv(size, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""
