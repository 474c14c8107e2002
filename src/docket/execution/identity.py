"""The key and the call of a task, which do not change, and the record in which they were found."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from docket.model.states import ExecutionState

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.storage.records import TaskRecord

    from .task_call import TaskFunction


class TaskIdentity:
    """Read-only attributes. Setting the key would only make the object refer to another task."""

    _docket: Docket
    _function: TaskFunction
    _function_name: str
    _args: tuple[Any, ...]
    _kwargs: dict[str, Any]
    _key: str

    if TYPE_CHECKING:

        @property
        def docket(self) -> Docket: ...

        @property
        def function(self) -> TaskFunction: ...

        @property
        def function_name(self) -> str: ...

        @property
        def args(self) -> tuple[Any, ...]: ...

        @property
        def kwargs(self) -> dict[str, Any]: ...

        @property
        def key(self) -> str: ...

    else:
        # These are read for every task. attrgetter halves the cost of a Python function.
        docket = property(attrgetter("_docket"), doc="The docket of the task.")
        function = property(attrgetter("_function"), doc="The task function.")
        function_name = property(attrgetter("_function_name"), doc="The name by which workers find the function.")
        args = property(attrgetter("_args"), doc="The positional arguments.")
        kwargs = property(attrgetter("_kwargs"), doc="The keyword arguments.")
        key = property(attrgetter("_key"), doc="The key, which is unique among the tasks of the docket.")


class TaskWithRecord(TaskIdentity):
    """A task, its state, and its record as far as it was read."""

    state: ExecutionState
    record: TaskRecord | None
    _message_id: str | None

    @property
    def message_id(self) -> str | None:
        """The id of the task's stream entry, if it has one."""
        if self._message_id is None and self.record is not None and not self.record.is_held:
            return self.record.entry
        return self._message_id

    @message_id.setter
    def message_id(self, id: str | None) -> None:
        self._message_id = id

    @property
    def is_held(self) -> bool:
        """Whether a pause holds the task, as far as this handle knows (see `sync`). Its state is
        QUEUED."""
        return self.state is ExecutionState.QUEUED and self.record is not None and self.record.is_held
