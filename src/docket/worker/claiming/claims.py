"""The claims of one worker: `take` while there may be work, `claim` for entries that were read."""

from __future__ import annotations

from collections.abc import Iterable

from docket.ledger import Entry, Ledger, ReservedSlot, WaitingFunctions

from .claiming_service import Claimed
from .direct_delivery import DirectDelivery
from .isolation import Isolation


class Claims:
    """Sends claims. A `take` also carries the slot that the worker offers and the functions whose
    tasks may wait for this worker."""

    def __init__(self, ledger: Ledger, direct_delivery: DirectDelivery, isolation: Isolation) -> None:
        self._ledger = ledger
        self._direct_delivery = direct_delivery
        self._isolation = isolation
        # Functions that this worker knows and whose tasks may wait for it.
        self.functions: set[str] = set()
        # The entries whose claim is not answered yet.
        self._unanswered: set[str] = set()
        self.worker: str = ""
        self.worker_json: str = ""

    def bring_forward(self, functions: Iterable[str]) -> None:
        self.functions.update(functions)

    async def take(self, worker: str, count: int, reserved: ReservedSlot | None) -> Claimed:
        """Claims up to `count` tasks. If there are none,
        the server may use the slot that is reserved."""
        functions = WaitingFunctions(list(self.functions)) if self.functions else None
        # This `take` may be too early for functions that are added from now on.
        self.functions.clear()
        try:
            return await self._ledger.take(
                worker,
                self.worker_json,
                count,
                reserved,
                self._isolation.ready_notes(),
                functions=functions,
                reads_front=self._isolation.reads_front,
            )
        finally:
            if functions is not None:
                self.functions.update(functions.names if functions.left is None else functions.left)
            if reserved is not None and self.worker == worker:
                self._direct_delivery.taken(reserved)

    async def claim(self, worker: str, entries: list[Entry], *, gives_up: bool = False) -> Claimed:
        """Claims entries that were read. `gives_up` puts a reserved suspect back instead."""
        self._unanswered = {entry.id for entry in entries}
        try:
            return await self._ledger.claim(
                worker, self.worker_json, entries, self._isolation.ready_notes(), gives_up=gives_up
            )
        finally:
            self._unanswered = set()

    def unanswered(self) -> set[str]:
        """The entries that this worker knows although they are not claimed."""
        reserved = self._isolation.reserved
        return self._unanswered | {reserved.id} if reserved is not None else self._unanswered
