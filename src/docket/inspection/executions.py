"""Executions of stored tasks. Nothing of a task is
decoded before somebody asks for its arguments."""

from __future__ import annotations

from typing import Any

from docket.codec.payloads import shown_arguments
from docket.errors import Undecodable
from docket.execution import Execution
from docket.execution.context import DocketContext
from docket.execution.execution import from_record
from docket.execution.functions import unregistered_function
from docket.model.times import from_ms
from docket.storage.records import TaskRecord

# The attributes that come from the payload.
_DECODED = ("_args", "_kwargs", "trace_context")


class StoredExecution(Execution):
    """An execution whose `args`, `kwargs` and `trace_context` are decoded on first access.

    Decoding a pickle can run any code, so observers must not decode what they only list. If the
    arguments cannot be decoded, the execution has none, and `schedule_exception` is the error.
    """

    def __init__(self, docket: DocketContext, key: str, task: TaskRecord, problem: Undecodable | None = None) -> None:
        name = task.function_name
        function = docket.tasks.get(name) or unregistered_function(name)
        super().__init__(docket, function, (), {}, key, from_ms(task.due_ms), function_name=name)
        self.apply_task(task)
        self._sealed: TaskRecord = task
        self._problem: BaseException | None = problem
        for decoded in _DECODED:
            del self.__dict__[decoded]

    # Python calls this only for attributes that are not there.
    def __getattr__(self, name: str) -> Any:
        if name not in _DECODED or "_sealed" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._decode()
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_DECODED]

    def _decode(self) -> None:
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        trace_context: dict[str, str] | None = None
        if self._problem is None:
            try:
                opened = from_record(self.docket, self.key, self._sealed, self.docket.tasks.get(self.function_name))
                args, kwargs, trace_context = opened.args, opened.kwargs, opened.trace_context
            except Undecodable as error:
                self._problem = error
        self.__dict__.update(_args=args, _kwargs=kwargs, trace_context=trace_context)

    @property
    def logged_arguments(self) -> dict[str, str] | None:
        """The `Logged` arguments as text, as the producer stored them. Nothing is decoded."""
        task = self._sealed
        return shown_arguments(task.call) if task.reference is None else None

    async def fetch_call(self) -> None:
        """Fetches arguments that are stored apart. If they are gone, `schedule_exception` says
        so."""
        try:
            await self.docket.ledger.payloads.complete(self._sealed)
        except Undecodable as error:
            self._problem = error

    def _get_problem(self) -> BaseException | None:
        """Why the arguments cannot be decoded, or None."""
        if "_args" not in self.__dict__:
            self._decode()
        return self._problem

    def _set_problem(self, error: BaseException | None) -> None:
        self._problem = error

    schedule_exception: Any = property(_get_problem, _set_problem)


def read_execution(docket: DocketContext, key: str, task: TaskRecord) -> Execution:
    """The execution of a task record."""
    return StoredExecution(docket, key, task)


async def find_execution(docket: DocketContext, key: str) -> Execution[Any] | None:
    """The task of that key, finished or not, or None."""
    status = await docket.ledger.tasks.get(key)
    if status.task is None and status.finished is None:
        # An automatic task that was buried stays visible until it is retried.
        status.finished = await docket.ledger.letters.buried_record(key)
    task = status.task or (status.finished.task if status.finished else None)
    if task is None:
        return None
    execution = StoredExecution(docket, key, task)
    await execution.fetch_call()
    execution.apply(status)
    return execution
