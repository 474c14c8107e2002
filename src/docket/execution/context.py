"""The run that the current code belongs to, and the parts of the docket and of the worker that it
sees. The docket and the worker themselves are in higher layers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from uncalled_for import Dependency

from docket.codec import Payloads
from docket.ledger import Ledger, ProgressChange, Unwritten
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions

from .manual_runs import ManualRuns
from .task_call import TaskFunction

if TYPE_CHECKING:
    from docket.strikelist import StrikeList
    from docket.strikelist.pauses import Pause, PauseStore

    from .execution import Execution
    from .progress import ProgressEvent
    from .waiting import StateEvent


class DocketContext(Protocol):
    """The part of the docket that executions, and the readers of its tasks, use."""

    name: str
    payloads: Payloads
    max_payload: int
    execution_ttl: timedelta
    server: Server
    keys: Keys
    strike_list: StrikeList

    @property
    def tasks(self) -> dict[str, TaskFunction]: ...

    @property
    def pause_store(self) -> PauseStore: ...

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

    async def wait_for_strikes_loaded(self) -> None: ...

    async def pauses(self) -> list[Pause]: ...

    def now(self) -> datetime: ...

    def labels(self) -> dict[str, str]: ...

    async def schedule(self, execution: Execution, *, replace: bool = False) -> None: ...

    async def write_progress(self, change: ProgressChange) -> bytes | Unwritten: ...

    def watch(self, key: str, ready: asyncio.Event | None = None) -> AsyncGenerator[StateEvent | ProgressEvent]: ...


class ThreadsContext(Protocol):
    """The threads of the worker."""

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...


class StaffContext(Protocol):
    """The parts of the worker that runtimes of functions use."""

    @property
    def threads(self) -> ThreadsContext: ...


class WorkerContext(Protocol):
    """The part of the worker that dependencies use."""

    name: str

    @property
    def dependencies(self) -> Mapping[str, Dependency[Any]]: ...

    def labels(self) -> dict[str, str]: ...

    def now(self) -> datetime: ...

    def body_waits(self, execution: Execution, docket: DocketContext, key: str) -> None: ...

    @property
    def staff(self) -> StaffContext: ...


current_docket: ContextVar[DocketContext] = ContextVar("current_docket")
"""The docket of the run in this context."""
current_worker: ContextVar[WorkerContext] = ContextVar("current_worker")
"""The worker of the run in this context."""
current_execution: ContextVar[Execution] = ContextVar("current_execution")
"""The execution of the run in this context."""


def note_wait(docket: DocketContext, key: str) -> None:
    """Notifies the worker that the body of a task waits
    for another task. Does nothing outside a run."""
    execution = current_execution.get(None)
    if execution is not None and execution.epoch:
        current_worker.get().body_waits(execution, docket, key)
