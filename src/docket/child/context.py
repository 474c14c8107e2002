"""The run as the function in a child sees it: its worker, its progress, its coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from docket.dependencies import Dependency
from docket.execution import Execution, ExecutionProgress
from docket.execution.functions import DONE, close_unawaited
from docket.ledger import ProgressChange

from .messages import MessageKind
from .pipe import Pipe

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.execution.context import DocketContext

T = TypeVar("T")


class ChildWorker:
    """The part of the worker that dependencies use. The worker itself is in another process."""

    def __init__(self, docket: Docket, name: str, labels: dict[str, str]) -> None:
        self.name: str = name
        self._docket = docket
        self._labels = labels

    @property
    def dependencies(self) -> Mapping[str, Dependency[Any]]:
        return {}

    def labels(self) -> dict[str, str]:
        return dict(self._labels)

    def now(self) -> datetime:
        return self._docket.now()

    def body_waits(self, execution: Execution, docket: DocketContext, key: str) -> None:
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

    def __init__(self, pipe: Pipe, docket: Docket, open_docket: Any, key: str, epoch: int, number: int) -> None:
        super().__init__(docket, key, epoch)
        self._pipe = pipe
        self._open_docket = open_docket
        self._number = number

    def _now_or_later(self, coroutine: Coroutine[Any, Any, None]) -> Awaitable[None]:
        if self.caller is None or threading.current_thread() is threading.main_thread():
            return super()._now_or_later(coroutine)
        # Another thread has no event loop. A change needs none: it is one message on the pipe.
        with suppress(StopIteration):
            coroutine.send(None)
        return DONE

    async def _change(self, change: ProgressChange) -> None:
        self.used = True
        self._pipe.send(MessageKind.PROGRESS, self._number, change.add, change.current, change.total, change.message)
        self._apply_locally(change)

    async def sync(self) -> None:
        await self._open_docket()
        await super().sync()


class ChildCaller:
    """Runs coroutines for a plain function in a child. The function has the main thread, so the
    event loop runs only meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: Pipe) -> None:
        self._loop = loop
        self._pipe = pipe

    def run(self, awaitable: Awaitable[T]) -> T:
        try:
            self._pipe.check_is_ours()
        except RuntimeError:
            close_unawaited(awaitable)
            raise
        if threading.current_thread() is not threading.main_thread():
            close_unawaited(awaitable)
            raise RuntimeError("in a child, run_async() works only in the thread of the function itself")

        async def await_it() -> T:
            return await awaitable

        return self._loop.run_until_complete(await_it())

    def check(self) -> None:
        """A run that is cancelled ends with a signal."""
