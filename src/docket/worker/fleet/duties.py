"""The worker's duty for the fleet: leader, deputy
or none (docs/design/lease-protocol.md, Duties)."""

from __future__ import annotations

from collections.abc import Callable

from docket.ledger import Duty


class Duties:
    """The worker's duty, as far as the worker knows. Only the
    event loop changes it; the renewal thread reads it, too."""

    def __init__(self) -> None:
        self.duty: Duty = Duty.NONE
        # Whether the worker accepts a vacant duty. A worker that stops does not.
        self.willing: bool = True
        self._changed: Callable[[], None] = _nothing

    @property
    def leads(self) -> bool:
        return self.duty is Duty.LEADER

    def on_change(self, listener: Callable[[], None]) -> None:
        self._changed = listener

    def assign(self, duty: Duty) -> None:
        if duty is not self.duty:
            self.duty = duty
            self._changed()

    def resign(self) -> None:
        self.willing = False
        self.duty = Duty.NONE


def _nothing() -> None:
    pass
