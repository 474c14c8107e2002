"""The run as the function in a child sees it: its worker, its progress, its coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from docket.dependencies import Dependency
from docket.execution import Execution, ExecutionProgress
from docket.execution.plain_functions import close_unawaited
from docket.ledger import ProgressChange

from .messages import Kind, RunRequest
from .pipe import Pipe

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.execution.docket_view import DocketView

T = TypeVar("T")


class ChildWorker:
    """The part of the worker that dependencies use. The worker itself is in another process."""

    def __init__(self, docket: Docket, request: RunRequest) -> None:
        self.name: str = request.worker
        self._docket = docket
        self._labels = request.labels

    @property
    def dependencies(self) -> Mapping[str, Dependency[Any]]:
        return {}

    def labels(self) -> dict[str, str]:
        return dict(self._labels)

    def now(self) -> datetime:
        return self._docket.now()

    def body_waits(self, execution: Execution, docket: DocketView, key: str) -> None:
        """The worker warns of bodies that wait for other tasks only in its own process."""

    @property
    def staff(self) -> Any:
        raise RuntimeError("a child has no threads")


class ChildExecution(Execution[Any]):
    """An execution whose progress goes to the worker."""

    def use_progress(self, progress: ExecutionProgress) -> None:
        self._progress = progress


class ChildProgress(ExecutionProgress):
    """Sends every change to the worker, which writes it."""

    def __init__(self, pipe: Pipe, docket: Docket, open_docket: Any, key: str, epoch: int) -> None:
        super().__init__(docket, key, epoch)
        self._pipe = pipe
        self._open_docket = open_docket

    async def _change(self, change: ProgressChange) -> None:
        self.used = True
        self._pipe.send(Kind.PROGRESS, change.add, change.current, change.total, change.message)
        self._apply_locally(change)

    async def sync(self) -> None:
        await self._open_docket()
        await super().sync()


class ChildCaller:
    """Runs coroutines for a plain function in a child. The function has the main thread, so the
    event loop runs only meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, awaitable: Awaitable[T]) -> T:
        if threading.current_thread() is not threading.main_thread():
            close_unawaited(awaitable)
            raise RuntimeError("in a child, run_async() works only in the thread of the function itself")

        async def await_it() -> T:
            return await awaitable

        return self._loop.run_until_complete(await_it())

    def check(self) -> None:
        """A run that is cancelled ends with a signal."""
