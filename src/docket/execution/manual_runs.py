"""Runs that callers claim by key, without a worker.
Their leases are renewed while the docket is open."""

from __future__ import annotations

import asyncio

from docket._aio import cancel_and_wait
from docket.errors import TRANSIENT
from docket.ledger import Ledger
from docket.ledger.workers import manual_run_id


class ManualRuns:
    """Renews the leases of the manual runs of one docket.

    If the process of a run dies, or its event loop is blocked
    for longer than the lease, the sweep puts the task back.
    """

    def __init__(self, ledger: Ledger, lease_ms: int, name: str) -> None:
        self._ledger = ledger
        self._lease_ms = lease_ms
        self._name = name
        self._lease_ids: dict[int, str] = {}
        self._renewing: asyncio.Task[None] | None = None

    async def claim(self, key: str, worker: str) -> tuple[float, int]:
        """The server's time in ms and the epoch of the new
        run. The epoch is 0 if the task is not waiting."""
        # Each run has its own lease. If the answer to a
        # claim is lost, that lease is not renewed and ends.
        lease_id = manual_run_id(worker)
        now_ms, epoch = await self._ledger.claim_by_key(key, worker, lease_id, self._lease_ms)
        if epoch:
            self._lease_ids[epoch] = lease_id
            if self._renewing is None:
                self._renewing = asyncio.create_task(self._renew(), name=f"{self._name}  - manual runs")
        return now_ms, epoch

    def id_of(self, epoch: int) -> str | None:
        """The worker id in the run record, if this docket has claimed the run."""
        return self._lease_ids.get(epoch)

    def release(self, epoch: int) -> None:
        """Stops renewing the lease of a run that is over."""
        self._lease_ids.pop(epoch, None)

    async def aclose(self) -> None:
        self._lease_ids.clear()
        if self._renewing is not None:
            await cancel_and_wait([self._renewing], "docket closes")

    async def _renew(self) -> None:
        try:
            while self._lease_ids:
                await asyncio.sleep(self._lease_ms / 3000)
                if self._lease_ids:
                    await self._extend()
        finally:
            self._renewing = None
            self._ledger.server.outages.forget(self)

    async def _extend(self) -> None:
        try:
            await self._ledger.renew_manual_leases(list(self._lease_ids.values()), self._lease_ms)
            self._ledger.server.outages.passed(self)
        except TRANSIENT as error:
            self._ledger.server.outages.failed(self, "renewing the leases of manual runs", error)
