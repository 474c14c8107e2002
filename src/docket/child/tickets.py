"""The tickets of runs that were sent ahead. A ticket is the number of a run, in a pipe of which the
worker and the child both have the reading end. Whoever reads the ticket has the run."""

from __future__ import annotations

import contextlib
import os

_TICKET = 8
# More than the tickets that a child ever has.
_ALL = 1 << 12


class Tickets:
    """What the worker does: it issues tickets, and takes them back."""

    def __init__(self) -> None:
        self.reading: int
        self._writing: int
        self.reading, self._writing = os.pipe()
        # Also for the child, since it has the same end.
        os.set_blocking(self.reading, False)
        os.set_blocking(self._writing, False)

    def issue(self, number: int) -> None:
        os.write(self._writing, number.to_bytes(_TICKET, "little"))

    def take_back(self) -> set[int]:
        """The tickets that the child has not taken. It cannot take them any more."""
        try:
            data = os.read(self.reading, _ALL)
        except BlockingIOError:
            return set()
        return {int.from_bytes(data[at : at + _TICKET], "little") for at in range(0, len(data), _TICKET)}

    def close(self) -> None:
        for descriptor in (self.reading, self._writing):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class TicketReader:
    """What the child does: it takes the ticket of a run before it begins the run."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._last = 0

    def take(self, number: int) -> bool:
        """Whether the run is the child's. A ticket of a later run is kept for that run."""
        while self._last < number:
            try:
                data = os.read(self._descriptor, _TICKET)
            except OSError:
                return False
            if len(data) < _TICKET:
                return False
            self._last = int.from_bytes(data, "little")
        return self._last == number

    def let_go(self) -> None:
        """In a process that the function has forked."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
