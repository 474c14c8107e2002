"""Services that claim work: one that is told to stop waits
for its claim and hands back what the claim brought."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from docket._aio import cancel_and_wait, wait_out
from docket.ledger import Delivery

from .service import Service

# None: the worker has no lease.
Claimed = Sequence[Delivery] | None


class ClaimingService(Service):
    """Cancelled, it ends at once unless a claim is under
    way; then it ends when the claim is answered."""

    def __init__(self, labels: dict[str, str], most_pause: float, refuse: Callable[[Delivery], None]) -> None:
        super().__init__(labels, most_pause)
        self._refuse_unknown = refuse
        self._claiming = self._halting = False

    async def run(self) -> None:
        self._halting = False
        steps = asyncio.create_task(super().run(), name=f"{self._labels['docket.name']} - {self.name}")
        try:
            await asyncio.shield(steps)
        except asyncio.CancelledError:
            self._halting = True
            if not self._claiming:
                await cancel_and_wait([steps], "docket: the worker stops")
            await wait_out(steps)
            raise

    async def _claim_to_the_end(self, claim: Coroutine[Any, Any, Claimed]) -> Claimed:
        """A claim is not left half-way: if the worker stops
        meanwhile, the claimed tasks go back untouched."""
        self._claiming, claimed = True, None
        try:
            claimed = await claim
        except Exception:
            if not self._halting:
                raise
        finally:
            self._claiming = False
        if not self._halting:
            return claimed
        for delivery in claimed or ():
            self._refuse_unknown(delivery)
        raise asyncio.CancelledError
