"""A call that its function does not take fails where it
is written, as a call of the function itself would."""

import asyncio
import functools
import inspect
import io
import sys
import types
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import pytest

from docket import (
    Agenda,
    ConcurrencyLimit,
    Cooldown,
    Cron,
    Depends,
    Docket,
    Execution,
    Perpetual,
    Retry,
    TaskKey,
    Timeout,
    Worker,
)
from docket.dependencies import FailureHandler, TaskOutcome, _parameter_cache
from docket.errors import TaskNotRegistered, Unserializable
from docket.execution import _signature_cache
from tests.times import now

SECOND = timedelta(seconds=1)

Calls = Callable[[Docket, Any], Callable[..., Any]]


async def greet(name: str, greeting: str = "hello") -> str:
    return f"{greeting} {name}"


async def only_keywords(*, name: str, greeting: str = "hello") -> None: ...


async def by_position(name: str, /, *more: str) -> None: ...


async def anything(*args: Any, **kwargs: Any) -> None: ...


async def with_dependencies(
    name: str,
    key: str = TaskKey(),
    retry: Retry = Retry(attempts=2),
    number: int = Depends(lambda: 1),
) -> None: ...


def connect() -> str:
    return "connected"


async def provided_by_annotation(name: str, connection: Annotated[str, Depends(connect)], last: str) -> str:
    return f"{name} {connection} {last}"


async def limited(customer: Annotated[str, ConcurrencyLimit(1)]) -> None: ...


class Service:
    async def greet(self, name: str) -> None: ...

    async def __call__(self, name: str) -> None: ...


def add(docket: Docket, function: Any) -> Callable[..., Any]:
    return docket.add(function)


def replace(docket: Docket, function: Any) -> Callable[..., Any]:
    return docket.replace(function, now(), "k")


def call(docket: Docket, function: Any) -> Callable[..., Any]:
    return docket.call(function)


def on_an_agenda(docket: Docket, function: Any) -> Callable[..., Any]:
    return Agenda().add(function)


WRONG: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (greet, (), {}),
    (greet, ("a", "b", "c"), {}),
    (greet, ("a",), {"foo": 3}),
    (greet, ("a",), {"name": "b"}),
    (only_keywords, ("a",), {}),
    (only_keywords, (), {}),
    (by_position, (), {"name": "a"}),
    (with_dependencies, (), {}),
    (with_dependencies, ("a",), {"retries": Retry(attempts=3)}),
    (limited, (), {}),
    (Service().greet, (), {}),
    (functools.partial(greet, "a"), ("b", "c"), {}),
]
RIGHT: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (greet, ("a",), {}),
    (greet, (), {"name": "a", "greeting": "b"}),
    (only_keywords, (), {"name": "a"}),
    (by_position, ("a", "b", "c"), {}),
    (anything, (1, 2, 3), {"a": 4, "self": 5}),
    (with_dependencies, ("a",), {}),
    (with_dependencies, ("a",), {"retry": Retry(attempts=3), "number": 5}),
    (provided_by_annotation, ("a",), {"last": "z"}),
    (limited, ("a",), {}),
    (Service().greet, ("a",), {}),
    (functools.partial(greet, "a"), (), {}),
]


@pytest.mark.parametrize("verb", [add, replace, call, on_an_agenda])
@pytest.mark.parametrize(("function", "args", "kwargs"), WRONG)
async def test_a_wrong_call_is_a_type_error_where_it_is_written(
    docket: Docket, verb: Calls, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    docket.register(function, names=["task"])
    pending = verb(docket, "task" if isinstance(function, functools.partial) and verb is not on_an_agenda else function)

    with pytest.raises(TypeError, match=r"argument"):
        pending(*args, **kwargs)

    assert (await docket.snapshot()).total_tasks == 0


@pytest.mark.parametrize(("args", "kwargs"), [(args, kwargs) for function, args, kwargs in WRONG if function is greet])
async def test_the_words_are_those_of_the_function_itself(
    docket: Docket, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError) as expected:
        _ = greet(*args, **kwargs)

    with pytest.raises(TypeError) as told:
        _ = docket.add(greet)(*args, **kwargs)

    assert str(told.value) == str(expected.value)


@pytest.mark.parametrize("verb", [add, replace, call, on_an_agenda])
@pytest.mark.parametrize(("function", "args", "kwargs"), RIGHT)
async def test_a_right_call_is_accepted(
    docket: Docket, verb: Calls, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    docket.register(function, names=["task"])
    pending = verb(docket, "task" if isinstance(function, functools.partial) and verb is not on_an_agenda else function)

    made = pending(*args, **kwargs)

    if inspect.isawaitable(made):
        await made


async def test_a_call_by_name_is_checked_if_the_function_is_known_here(docket: Docket) -> None:
    docket.register(greet)

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        _ = docket.add("greet")()


async def test_a_decorator_that_injects_an_argument_makes_no_right_call_an_error(
    docket: Docket, worker: Worker
) -> None:
    def with_session(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def shell(*args: Any, **kwargs: Any) -> Any:
            return await function("session", *args, **kwargs)

        return shell

    @with_session
    async def store(session: str, number: int) -> str:
        return f"{session} {number}"

    execution = await docket.add(store)(5)
    await worker.run_until_finished()

    assert await execution.get_result() == "session 5"


async def test_a_signature_that_was_set_is_what_counts(docket: Docket) -> None:
    async def shell(*args: Any, **kwargs: Any) -> None: ...

    cast(Any, shell).__signature__ = inspect.signature(greet)

    await docket.add(shell)("a")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        _ = docket.add(shell)()


async def test_a_signature_that_a_client_changes_is_checked_again(docket: Docket) -> None:
    async def shell(*args: Any, **kwargs: Any) -> None: ...

    await docket.add(shell)()
    cast(Any, shell).__signature__ = inspect.signature(greet)
    _signature_cache.pop(shell, None)
    _parameter_cache.pop(shell, None)

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        _ = docket.add(shell)()


async def test_an_automatic_task_is_seeded_as_before(docket: Docket, worker: Worker) -> None:
    ran: list[int] = []

    async def tick(*numbers: int, perpetual: Perpetual = Perpetual(automatic=True)) -> None:
        ran.append(len(ran))
        perpetual.cancel()

    docket.register(tick)
    await worker.run_until_finished()

    assert ran == [0]


async def test_a_behaviour_is_passed_by_keyword(docket: Docket) -> None:
    async def work(timeout: Timeout = Timeout(SECOND), retry: Retry = Retry(attempts=1)) -> None: ...

    execution = await docket.add(work)(retry=Retry(attempts=2))

    assert isinstance(execution.kwargs["retry"], Retry)


class Own(FailureHandler[Any]):
    async def __aenter__(self) -> "Own":
        return self

    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        return False


async def behaving(
    name: str,
    retry: Retry = Retry(attempts=2),
    timeout: Timeout = Timeout(SECOND),
    perpetual: Perpetual = Perpetual(),
    limit: ConcurrencyLimit = ConcurrencyLimit(1),
    value: object = Depends(lambda: 1),
) -> None: ...


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("verb", [add, replace, call, on_an_agenda])
@pytest.mark.parametrize("function", [behaving, decorated(behaving)], ids=["plain", "decorated"])
@pytest.mark.parametrize(
    "passed",
    [
        {"retry": "often"},
        {"retry": Retry},
        {"retry": ConcurrencyLimit(2)},
        {"timeout": 3},
        {"timeout": SECOND},
        {"perpetual": True},
        {"limit": 5},
    ],
)
async def test_what_is_not_a_behaviour_is_refused_for_one(
    docket: Docket, verb: Calls, function: Any, passed: dict[str, Any]
) -> None:
    docket.register(function)
    (name,) = passed
    with pytest.raises(TypeError, match=rf"behaving\(\) .*'{name}'"):
        verb(docket, function)("a", **passed)

    assert (await docket.snapshot()).total_tasks == 0


async def test_what_is_not_a_behaviour_is_refused_by_position_too(docket: Docket) -> None:
    async def work(own: Own = Own()) -> None: ...

    with pytest.raises(TypeError, match="'retry'"):
        _ = docket.add(behaving)("a", cast(Any, "often"))
    with pytest.raises(TypeError, match="'own'"):
        _ = docket.add(work)(cast(Any, 0))


@pytest.mark.parametrize(
    "passed",
    [
        {"retry": None, "timeout": None, "perpetual": None, "limit": None},
        {"retry": Own(), "timeout": Timeout(SECOND), "perpetual": Cron("0 4 * * *")},
        {"limit": ConcurrencyLimit(2)},
        {"limit": Cooldown(SECOND)},
        {"value": "anything"},
        {"value": Retry},
    ],
)
async def test_behaviours_none_and_values_of_plain_dependencies_are_accepted(
    docket: Docket, passed: dict[str, Any]
) -> None:
    docket.register(behaving)

    assert docket.call(behaving)("a", **passed).kwargs == passed


# Other mistakes of the first week


def test_a_class_is_refused(docket: Docket) -> None:
    with pytest.raises(TypeError, match=r"Service is a class, so it cannot be a task"):
        docket.add(cast(Any, Service))


@pytest.mark.parametrize("mode", ["r", "rb", "w", "r+b"])
@pytest.mark.parametrize("place", [lambda file: file, lambda file: [file], lambda file: {"a": file}])
async def test_an_open_file_is_refused(docket: Docket, tmp_path: Path, mode: str, place: Callable[[Any], Any]) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("1,2,3")
    with path.open(mode) as file, pytest.raises(Unserializable) as caught:
        await docket.add(anything)(1, place(file))

    assert str(caught.value).startswith("anything: argument 2, of type")
    assert str(caught.value).endswith("an open file stays in its process; pass its path, or what it contains")


async def test_what_is_read_from_memory_is_no_file(docket: Docket, worker: Worker) -> None:
    async def read(text: io.StringIO) -> str:
        return text.read()

    execution = await docket.add(read)(io.StringIO("abc"))
    await worker.run_until_finished()

    assert await execution.get_result() == "abc"


async def test_a_number_is_not_a_time_to_wait(docket: Docket) -> None:
    execution = await docket.add(greet)("a")
    one: Any = 1

    with pytest.raises(TypeError, match=r"get_result\(timeout=1\): a duration is a timedelta"):
        await execution.get_result(timeout=one)
    with pytest.raises(TypeError, match=r"get_result\(deadline=1\): a deadline is a datetime"):
        await execution.get_result(deadline=one)


async def test_awaiting_an_addition_without_arguments_says_what_is_missing(docket: Docket) -> None:
    pending: Any = docket.add(greet)
    with pytest.raises(TypeError, match=r"Call it first, even without arguments: `await docket\.add\(greet\)\(…\)`"):
        await pending
    pending = docket.replace(greet, now(), "k")
    with pytest.raises(
        TypeError, match=r"Call it first, even without arguments: `await docket\.replace\(greet\)\(…\)`"
    ):
        await pending


async def test_frameworks_see_that_an_addition_has_to_be_awaited(docket: Docket) -> None:
    pending = docket.add(greet)

    assert asyncio.iscoroutinefunction(pending)
    if sys.version_info >= (3, 12):
        assert inspect.iscoroutinefunction(pending)
    assert isinstance(await pending("a"), Execution)


def test_six_fields_are_too_many_for_cron() -> None:
    with pytest.raises(ValueError, match=r"Cron\('\*/10 \* \* \* \* \*'\): 6 fields; a cron expression has five"):
        Cron("*/10 * * * * *")


@pytest.fixture
def module() -> Iterator[str]:
    module = types.ModuleType("tests_wrong_calls_collection")
    cast(Any, module).tasks = [greet]
    sys.modules[module.__name__] = module
    yield module.__name__
    del sys.modules[module.__name__]


def test_a_collection_that_is_misspelt_is_guessed(docket: Docket, module: str) -> None:
    with pytest.raises(AttributeError, match=r"has no 'taks' .*; did you mean 'tasks'\?"):
        docket.register_collection(f"{module}:taks")


def test_a_task_that_is_misspelt_is_guessed(docket: Docket) -> None:
    docket.register(greet)

    with pytest.raises(TaskNotRegistered, match=r"no task is registered as 'gret'; did you mean 'greet'\?"):
        docket.add("gret")
