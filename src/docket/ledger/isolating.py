"""The mark of a run that has its process to itself (docs/design/lease-protocol.md, Suspects)."""

from __future__ import annotations

from docket.storage.keys import text_bytes

from .ledger import Ledger
from .values import Delivery


async def isolate(ledger: Ledger, worker: str, delivery: Delivery, *, alone: bool) -> bool:
    """Marks the run as the only body of its process, or removes the mark. False if the run no longer counts."""
    terms = (worker.encode(), text_bytes(delivery.key), delivery.epoch, int(alone))
    return bool(await ledger.ask("isolate", terms))
