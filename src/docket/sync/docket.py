"""The docket for code without an event loop: Flask, Django, scripts and notebooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from docket.calls import CallFields, check_chunk_size, with_options
from docket.docket import Docket as AsyncDocket
from docket.execution import Execution as AsyncExecution
from docket.execution import ProgressEvent, StateEvent, TaskCall, TaskFunction
from docket.storage.schema.requests import AddOptions

from .execution import Execution
from .pending_call import PendingCall, ScheduledAtOnce
from .producer import HOW_TO_OPEN, Producer
from .verbs import DeadLetters, OperatorVerbs

P = ParamSpec("P")
R = TypeVar("R")


class _BackgroundDocket(AsyncDocket):
    """The docket of the background loop."""

    _how_to_open = HOW_TO_OPEN


def _with_parameters_of(
    init: Callable[Concatenate[AsyncDocket, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Docket, P], None]]:
    """A sync docket takes the settings of the async one, also those that a later release adds."""
    return lambda own: functools.wraps(init)(own)


class Docket(OperatorVerbs):
    """Schedules tasks and finds them again, from any thread. It takes the settings of the async
    `docket.Docket`.

    It opens when it is first used, once per process, also after a fork. `open()` opens it at once,
    to see an error early. `close()`, or the end of a `with` block, closes it; then calls raise
    NotOpen until it is opened again. At the end of the process it closes by itself.

    The calls block for a round trip to the server. They raise the errors of the async docket.
    """

    @_with_parameters_of(AsyncDocket.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._settings = args, kwargs
        super().__init__(Producer(functools.partial(_BackgroundDocket, *args, **kwargs)))
        # The tasks that failed for good: to look at, to retry, to edit or to discard.
        self.dead: DeadLetters = DeadLetters(self._producer)

    def __reduce__(self) -> tuple[Any, ...]:
        """A docket with the same settings, for a process that is not forked but spawned."""
        args, kwargs = self._settings
        return functools.partial(Docket, *args, **kwargs), ()

    def __repr__(self) -> str:
        return f"<sync Docket {self.name!r} on {self._producer.unopened.server.shown_url}>"

    # Opening and closing

    def open(self) -> Self:
        """Opens the docket in this process. Does nothing if it is open.

        Raises UnknownScheme if docket does not know the scheme of the URL, and ServerUnsuitable if
        the server refuses docket or is too old.
        """
        self._producer.open()
        return self

    def close(self) -> None:
        """Closes the connections. Calls of other threads that still wait raise NotOpen."""
        self._producer.close()

    @property
    def is_open(self) -> bool:
        """Whether the docket is open in this process."""
        return self._producer.is_open

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # Names

    @property
    def name(self) -> str:
        """The name of the docket."""
        return self._producer.unopened.name

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._producer.unopened.url

    @property
    def tasks(self) -> dict[str, TaskFunction]:
        """The registered functions by name, the built-in tasks included."""
        return self._producer.unopened.tasks

    def now(self) -> datetime:
        """The time of the docket, with its time zone."""
        return self._producer.unopened.now()

    # Registering

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Makes a function known under its name, or under the given ones.

        Raises ValueError if its dependencies contradict each other; warns if another function has
        the name.
        """
        self._producer.unopened.register(function, names)

    def register_collection(self, collection_path: str, *, unique: bool = False) -> None:
        """Registers every function of `module:collection`."""
        self._producer.unopened.register_collection(collection_path, unique=unique)

    # Scheduling

    @overload
    def add(
        self,
        function: Callable[P, R],
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> ScheduledAtOnce[P, R]: ...
    @overload
    def add(
        self, function: str, when: datetime | None = None, key: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[..., Execution]: ...
    @with_options
    def add(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> Callable[..., Execution]:
        """Schedules a call: `docket.add(function, when, key)(*args, **kwargs)`.

        If a task of the key waits or runs, it stays as it is. Raises TaskNotRegistered (a KeyError)
        for an unknown name, TypeError for arguments that the function does not take, Unserializable
        or PayloadTooLarge for arguments that cannot be stored, ServerFull, or ServerUnreachable. In
        each case nothing was stored, unless the ServerUnreachable says `maybe_stored`.
        """
        return PendingCall(
            self._producer, CallFields(self._producer.unopened.registry, function, when, key, options, False)
        )

    @overload
    def replace(
        self, function: Callable[P, R], when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> ScheduledAtOnce[P, R]: ...
    @overload
    def replace(
        self, function: str, when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> Callable[..., Execution]: ...
    @with_options
    def replace(
        self, function: TaskFunction | str, when: datetime, key: str, **options: Unpack[AddOptions]
    ) -> Callable[..., Execution]:
        """Schedules a call in place of the waiting task of that key. If the key has a run now, that
        run no longer counts. Raises as `add`."""
        return PendingCall(
            self._producer, CallFields(self._producer.unopened.registry, function, when, key, options, True)
        )

    @overload
    def call(
        self,
        function: Callable[P, Any],
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> Callable[P, TaskCall]: ...
    @overload
    def call(
        self, function: str, when: datetime | None = None, key: str | None = None, **options: Unpack[AddOptions]
    ) -> Callable[..., TaskCall]: ...
    @with_options
    def call(
        self,
        function: TaskFunction | str,
        when: datetime | None = None,
        key: str | None = None,
        **options: Unpack[AddOptions],
    ) -> Callable[..., TaskCall]:
        """A call to schedule later, with `add_many` or `replace_many`."""
        return self._producer.unopened.call(function, when, key, **options)

    def add_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """Schedules many calls, in chunks. Each call succeeds or fails on its own: an error marks
        only its execution (`Disposition.FAILED`, `schedule_exception`)."""
        return self._handles(self._producer.schedule_many(calls, chunk_size, replace=False))

    def add_stream(self, calls: Iterable[TaskCall], chunk_size: int = 1000) -> Iterator[Execution]:
        """Schedules any number of calls in constant memory, a chunk at a time. Yields the execution
        of each call, in order. If `calls` raises, the chunks before are scheduled."""
        check_chunk_size(chunk_size)
        source = iter(calls)
        chunks = iter(lambda: list(islice(source, chunk_size)), [])
        return (execution for chunk in chunks for execution in self.add_many(chunk, None))

    def replace_many(self, calls: Iterable[TaskCall], chunk_size: int | None = 1000) -> list[Execution]:
        """As `add_many`, but replaces the waiting tasks of the keys. Of several calls with one key
        the last counts."""
        return self._handles(self._producer.schedule_many(calls, chunk_size, replace=True))

    def _handles(self, executions: list[AsyncExecution]) -> list[Execution]:
        return [Execution(self._producer, execution) for execution in executions]

    # Unfinished and finished tasks

    def get_execution(self, key: str) -> Execution[Any] | None:
        """The task of that key, finished or not, or None. Its function need not be registered
        here."""
        found = self._producer.run(lambda docket: docket.get_execution(key))
        return None if found is None else Execution(self._producer, found)

    def watch(self, key: str) -> Iterator[StateEvent | ProgressEvent]:
        """The present state and progress of a task, then every event until it has ended."""
        return self._producer.watch(key)
