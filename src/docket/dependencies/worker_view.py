"""The worker as dependencies see it, and the context of the current run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from uncalled_for import Dependency

from docket.execution.run_context import current_docket, current_execution, current_worker

if TYPE_CHECKING:
    from docket.execution import Execution
    from docket.execution.docket_view import DocketView


class ThreadsView(Protocol):
    """The threads of the worker."""

    async def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any: ...


class StaffView(Protocol):
    """The parts of the worker that runtimes of functions use."""

    @property
    def threads(self) -> ThreadsView: ...


class WorkerView(Protocol):
    """The part of the worker that dependencies use."""

    name: str

    @property
    def dependencies(self) -> Mapping[str, Dependency[Any]]: ...

    def labels(self) -> dict[str, str]: ...

    def now(self) -> datetime: ...

    def body_waits(self, execution: Execution, docket: DocketView, key: str) -> None: ...

    @property
    def staff(self) -> StaffView: ...


# Clients read these from the base class of all dependencies, which is uncalled-for's.
for _name, _variable in {
    "docket": current_docket,
    "worker": current_worker,
    "execution": current_execution,
}.items():
    setattr(Dependency, _name, _variable)


@runtime_checkable
class Immediate(Protocol):
    """A dependency that provides its value without a
    context manager, which costs almost nothing."""

    def provide(self, execution: Execution, worker: WorkerView) -> Any: ...


__all__ = ["Immediate", "WorkerView", "current_docket", "current_execution", "current_worker"]
