"""Services that claim tasks. A service that is asked to stop waits for the answer of its claim and
gives back the claimed tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from docket._aio import cancel_and_wait, wait_out
from docket.ledger import Delivery
from docket.worker.service import Service

# None: the worker has no lease.
Claimed = Sequence[Delivery] | None


class ClaimingService(Service):
    """A service that can be cancelled safely. It ends at once, or when the claim that is under way
    is answered."""

    def __init__(self, labels: dict[str, str], most_pause: float, refuse: Callable[[Delivery], None]) -> None:
        super().__init__(labels, most_pause)
        self._refuse_unknown = refuse
        self._is_claiming = self._is_stopping = False

    async def run(self) -> None:
        self._is_stopping = False
        steps = asyncio.create_task(super().run(), name=f"{self._labels['docket.name']} - {self.name}")
        try:
            await asyncio.shield(steps)
        except asyncio.CancelledError:
            self._is_stopping = True
            if not self._is_claiming:
                await cancel_and_wait([steps], "docket: the worker stops")
            await wait_out(steps)
            raise

    async def _claim_to_the_end(self, claim: Coroutine[Any, Any, Claimed]) -> Claimed:
        """Waits for the answer of a claim even if the worker stops. Then the claimed tasks go back
        untouched."""
        self._is_claiming, claimed = True, None
        try:
            claimed = await claim
        except Exception:
            if not self._is_stopping:
                raise
        finally:
            self._is_claiming = False
        if not self._is_stopping:
            return claimed
        for delivery in claimed or ():
            self._refuse_unknown(delivery)
        raise asyncio.CancelledError
