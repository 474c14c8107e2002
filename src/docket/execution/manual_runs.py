"""Runs that callers claim by hand, kept alive while their docket is open."""

from __future__ import annotations

import asyncio

from docket._aio import cancel_and_wait
from docket.errors import TRANSIENT
from docket.ledger import Ledger
from docket.ledger.workers import manual_run_id


class ManualRuns:
    """Renews the leases of the runs by hand of one docket, as long as there are any.

    A run whose process dies, or whose event loop is blocked
    for longer than the lease, is put back by the sweep.
    """

    def __init__(self, ledger: Ledger, lease_ms: int, name: str) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._name = name
        self._hands: dict[int, str] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def claim(self, key: str, worker: str) -> tuple[float, int]:
        """Server ms and the epoch of the new run; 0 if the task does not wait."""
        # A lease for each run: that of a claim whose answer is lost ends by itself.
        hand = manual_run_id(worker)
        now_ms, epoch = await self._ledger.claim_by_key(key, worker, hand, self._lease_ms)
        if epoch:
            self._hands[epoch] = hand
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew(), name=f"{self._name} - runs by hand")
        return now_ms, epoch

    def id_of(self, epoch: int) -> str | None:
        """The worker id in the run record, where this docket holds the run."""
        return self._hands.get(epoch)

    def release(self, epoch: int) -> None:
        """The run is over: its lease is not renewed any more."""
        self._hands.pop(epoch, None)

    async def aclose(self) -> None:
        self._hands.clear()
        if self._renewing is not None:
            await cancel_and_wait([self._renewing], "docket closes")

    async def _renew(self) -> None:
        try:
            while self._hands:
                await asyncio.sleep(self._lease_ms / 3000)
                if self._hands:
                    await self._hold()
        finally:
            self._renewing = None
            self._ledger.server.outages.forget(self)

    async def _hold(self) -> None:
        try:
            await self._ledger.extend_claims(list(self._hands.values()), self._lease_ms)
            self._ledger.server.outages.passed(self)
        except TRANSIENT as error:
            self._ledger.server.outages.failed(self, "renewing the leases of runs by hand", error)
