"""The part of the docket that executions use. The docket itself is in a higher layer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from docket.codec import Payloads
from docket.ledger import Ledger, ProgressChange, Unwritten

if TYPE_CHECKING:
    from docket.storage.subscriptions import Subscriptions

    from .execution import Execution
    from .manual_runs import ManualRuns
    from .progress import ProgressEvent
    from .waiting import StateEvent


class DocketView(Protocol):
    """The part of the docket that executions use."""

    name: str
    payloads: Payloads

    @property
    def ledger(self) -> Ledger: ...

    @property
    def subscriptions(self) -> Subscriptions: ...

    @property
    def manual_runs(self) -> ManualRuns: ...

    @property
    def result_storage(self) -> Any: ...

    @property
    def results_collection(self) -> str: ...

    def now(self) -> datetime: ...

    def labels(self) -> dict[str, str]: ...

    async def schedule(self, execution: Execution, *, replace: bool = False) -> None: ...

    async def write_progress(self, change: ProgressChange) -> bytes | Unwritten: ...

    def watch(self, key: str, ready: asyncio.Event | None = None) -> AsyncGenerator[StateEvent | ProgressEvent]: ...
