"""Calls on their way to the scheduler: pending ones, which
wait for the task's arguments, and many at once, in chunks."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar, get_type_hints, overload

from docket.dependencies.argument_checks import Check, argument_check
from docket.execution import Disposition, Execution, TaskCall, TaskFunction
from docket.execution.task_call import FRESH, new_call
from docket.instrumentation import caller_span, inject_context, is_tracing
from docket.model.task_keys import new_key
from docket.registry import Registry
from docket.storage.schema.requests import AddOptions

if TYPE_CHECKING:
    from docket.docket import Docket


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V", bound=Callable[..., Any])


class ScheduledBy(Protocol[P, R_co]):
    """A pending call as type checkers see it. The result of an async function is the value that it
    returns when it is awaited; the result of a plain function is what it returns.

    The overloads are here rather than in `Docket.add`, because there mypy could not choose one for
    a function that has a parameter of type Any.
    """

    @overload
    def __call__(
        self: ScheduledBy[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Execution[R]]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Execution[R_co]]: ...


# The options of `add`, `replace` and `call` by name, and the type of each.
OPTIONS: dict[str, Any] = get_type_hints(AddOptions)


def with_options(verb: V) -> V:
    """The verb with a signature that has each option under its own name."""
    signature = inspect.signature(verb)
    named = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    options = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in OPTIONS]
    vars(verb)["__signature__"] = signature.replace(parameters=[*named, *options])
    return verb


def checked_options(verb: str, options: AddOptions) -> AddOptions | None:
    """The options that a caller gave, or None if it gave none. Raises TypeError for an unknown
    option, and for a value of another type."""
    if not options:
        return None
    for name, value in options.items():
        if name not in OPTIONS:
            raise TypeError(
                f"Docket.{verb}() got an unexpected keyword argument {name!r} "
                "(the task's own arguments go into the second pair of parentheses)"
            )
        if not isinstance(value, OPTIONS[name]):
            kind = OPTIONS[name]
            raise TypeError(f"{name}={value!r}: it must be of the type {getattr(kind, '__name__', kind)}")
    return options


class CallFields:
    """A call without its arguments: what `docket.add(function, when, key, **options)` says."""

    __slots__ = ("check", "function", "key", "name", "options", "replace", "when")

    def __init__(
        self,
        registry: Registry,
        function: TaskFunction | str,
        when: datetime | None,
        key: str | None,
        options: AddOptions,
        replace: bool,
    ) -> None:
        self.options: AddOptions | None = checked_options("replace" if replace else "add", options) if options else None
        self.function: TaskFunction
        self.name: str
        self.function, self.name = registry.find(function)
        if when is not None or key is not None:
            check_when_and_key(when, key, self.name)
        self.when: datetime | None = when
        self.key: str | None = key
        self.replace: bool = replace
        # Raises TypeError for arguments that the function does not take.
        self.check: Check = argument_check(self.function)

    def __repr__(self) -> str:
        return f"docket.replace({self.name})" if self.replace else f"docket.add({self.name})"

    @property
    def verb(self) -> str:
        """The verb of the docket that made this call."""
        return "replace" if self.replace else "add"

    def execution(self, docket: Docket, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        """The execution of a new task with these arguments."""
        key = self.key
        task_key = new_key() if key is None else key
        # By position: Python would build a dictionary of keyword arguments for every task.
        execution = Execution(
            docket, self.function, args, kwargs, task_key, self.when or docket.now(), 1, None, False, self.name
        )
        if key is None:
            execution.key_use = FRESH
        if self.options is not None:
            execution._options = self.options  # pyright: ignore[reportPrivateUsage] - users do not set options
        return execution


class PendingCall:
    """Schedules a call of its function: `await docket.add(function)(*args, **kwargs)`."""

    __slots__ = ("_docket", "_fields")

    # Frameworks use these marks to find out whether a call must be awaited.
    _is_coroutine = getattr(asyncio.coroutines, "_is_coroutine", None)
    _is_coroutine_marker = getattr(inspect, "_is_coroutine_mark", None)

    def __init__(self, docket: Docket, fields: CallFields) -> None:
        self._docket = docket
        self._fields = fields

    def __repr__(self) -> str:
        return repr(self._fields)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Execution]:
        self._fields.check(*args, **kwargs)
        call = self._schedule(args, kwargs)
        # Python shows this name in its warning about a call that was never awaited.
        call.__qualname__ = repr(self._fields)
        return call

    def __await__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} is not called yet, so there is nothing to await. Call it first, even without arguments: "
            f"`await {self!r}(…)`"
        )

    async def _schedule(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        docket, fields = self._docket, self._fields
        execution = fields.execution(docket, args, kwargs)
        if is_tracing():
            with task_span(docket, fields.verb, execution):
                execution.trace_context = inject_context()
                await docket.scheduler.schedule(execution, fields.replace)
        else:
            await docket.scheduler.schedule(execution, fields.replace)
        return execution


def check_when_and_key(when: object, key: object, name: str) -> None:
    """Raises TypeError if a caller passes the task's own arguments as `when` or `key`."""
    if when is not None and not isinstance(when, datetime):
        raise TypeError(
            f"when={when!r} is not a datetime (for a delay, pass when=docket.now() + timedelta(…)); "
            f"the task's own arguments go into the second pair of parentheses: docket.add({name})(…)"
        )
    if key is not None and not isinstance(key, str):
        raise TypeError(f"key={key!r}: the key of a task is text, for instance key=f'{name}-{{number}}'")


Builder = Callable[..., TaskCall]

# Programs that make functions as they go must not fill the memory.
MOST = 1000


class _Known(NamedTuple):
    name: str
    check: Check
    build: Builder


class CallBuilders:
    """Functions that take the arguments of a task and return its call. Callers of `add_many` ask
    for one per call, so those without time and key are kept."""

    def __init__(self, registry: Registry, now: Callable[[], datetime]) -> None:
        self._registry = registry
        self._now = now
        self._known: dict[TaskFunction, _Known] = {}

    def get(self, function: TaskFunction | str, when: datetime | None, key: str | None, given: AddOptions) -> Builder:
        if isinstance(function, str) or when is not None or key is not None or given:
            return self._new(function, when, key, checked_options("call", given)).build
        known = self._known.get(function)
        if (
            known is None
            or self._registry.tasks.get(known.name) is not function
            or argument_check(function) is not known.check
        ):
            if len(self._known) >= MOST:
                self._known.clear()
            known = self._known[function] = self._new(function, when, key, None)
        return known.build

    def _new(
        self, function: TaskFunction | str, when: datetime | None, key: str | None, options: AddOptions | None
    ) -> _Known:
        found, name = self._registry.find(function)
        check_when_and_key(when, key, name)
        check, now = argument_check(found), self._now

        def build(*args: Any, **kwargs: Any) -> TaskCall:
            check(*args, **kwargs)
            task_key = new_key() if key is None else key
            return new_call(found, args, kwargs, task_key, when or now(), name, key is None, options)

        return _Known(name, check, build)


T = TypeVar("T")


def check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size}: it must be at least 1, or None for a single chunk")


def checked_calls(calls: Iterable[TaskCall]) -> Iterator[TaskCall]:
    """The calls, one by one. Raises TypeError at a value that is not a call."""
    for number, call in enumerate(calls):
        if not isinstance(call, TaskCall):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
            raise TypeError(f"calls[{number}] is {call!r}; a call is made by docket.call(function)(arguments)")
        yield call


def executions_of(docket: Docket, calls: Iterable[TaskCall]) -> Iterator[Execution]:
    """The executions of new tasks. The calls themselves are not kept: Python's garbage collector
    would visit them again and again."""
    trace_context = inject_context()
    for call in checked_calls(calls):
        # By position, as for one call.
        execution = Execution(
            docket,
            call.function,
            call.args,
            call.kwargs,
            call.key,
            call.when,
            1,
            trace_context,
            False,
            call.function_name,
        )
        options = call._options  # pyright: ignore[reportPrivateUsage] - users do not read options
        if options is not None:
            execution._options = options  # pyright: ignore[reportPrivateUsage] - users do not set options
        if call.seed:
            execution.seed = True
        execution.key_use = call.spend_key()
        yield execution


def in_chunks(executions: Sequence[T], chunk_size: int | None) -> Iterator[Sequence[T]]:
    size = chunk_size or max(len(executions), 1)
    for start in range(0, len(executions), size):
        yield executions[start : start + size]


async def chunks_of(items: Iterable[T] | AsyncIterable[T], size: int) -> AsyncIterator[list[T]]:
    """Lists of `size` items. Reads no further than the list that it yields."""
    chunk: list[T] = []
    if isinstance(items, AsyncIterable):
        async for item in items:
            chunk.append(item)
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        return
    source = iter(items)
    while chunk := list(islice(source, size)):
        yield chunk


async def stream_calls(
    docket: Docket, calls: Iterable[TaskCall] | AsyncIterable[TaskCall], chunk_size: int
) -> AsyncGenerator[Execution]:
    """Reads a chunk of calls while the server stores the one before. At most two chunks are in
    memory."""
    sending: asyncio.Task[list[Execution]] | None = None
    chunks, error = chunks_of(calls, chunk_size), None
    try:
        while True:
            try:
                chunk = await anext(chunks, None)
            except Exception as raised:
                chunk, error = None, raised
            scheduled = await sending if sending is not None else []
            sending = None
            if chunk is not None:
                sending = asyncio.create_task(docket.add_many(chunk, None), name=f"{docket.name} - sending a chunk")
                # Its first requests leave before the caller handles the executions.
                await asyncio.sleep(0)
            for execution in scheduled:
                yield execution
            if chunk is None:
                break
    finally:
        if sending is not None:
            # The caller has left early. Docket finishes the chunk that it has begun to send.
            await sending
    if error is not None:
        raise error


@contextlib.contextmanager
def task_span(docket: Docket, verb: str, execution: Execution) -> Generator[None]:
    """The span of a request to schedule one task. Its
    attribute `docket.disposition` has the result."""
    attributes: dict[str, Any] = {
        **docket.labels(),
        **execution.specific_labels(),
        "code.function.name": execution.function_name,
        "messaging.system": "docket",
        "messaging.destination.name": docket.name,
        "messaging.message.id": execution.key,
    }
    with caller_span(f"docket.{verb}", attributes) as span:
        yield
        span.set_attribute("docket.disposition", execution.disposition.value)


@contextlib.contextmanager
def batch_span(docket: Docket, verb: str, executions: Sequence[Execution]) -> Generator[None]:
    """The span of a batch. It records the number of tasks and of struck tasks when it ends."""
    if not is_tracing():
        yield
        return
    with caller_span(f"docket.{verb}", docket.labels()) as span:
        yield
        struck = sum(execution.disposition is Disposition.STRUCK for execution in executions)
        span.set_attributes({"docket.batch.count": len(executions), "docket.batch.stricken": struck})
