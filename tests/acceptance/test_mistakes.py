"""The mistakes of the first hour: each is told where it is made, and how to do better."""

import functools
import gc
import inspect
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from docket import (
    Cooldown,
    CurrentDocket,
    Depends,
    Docket,
    Execution,
    ExponentialRetry,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    Timeout,
    Worker,
)
from docket.errors import DocketError, NotOpen, UnknownScheme, Unserializable

SOON: Any = 5


async def send(number: int, text: str = "") -> str:
    return f"{number}{text}"


def blocking(number: int) -> int:
    return number


def says_nothing(number):  # type: ignore[no-untyped-def]
    return number


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


class Service:
    def blocking(self) -> None: ...

    async def send(self) -> str:
        return "sent"


# What cannot be a task


@pytest.mark.parametrize("function", [generator, async_generator])
def test_a_generator_is_refused(docket: Docket, function: Any) -> None:
    with pytest.raises(TypeError, match="generator is a generator, so it cannot be a task"):
        docket.add(function)


def test_the_call_of_a_function_is_not_taken_for_the_function(docket: Docket) -> None:
    call: Any = send(1)

    with pytest.raises(TypeError, match=r"pass the function itself, as in docket\.add\(send\)\(…\)"):
        docket.add(call)


@pytest.mark.parametrize("thing", [None, 3, object()])
def test_what_cannot_be_called_is_refused(docket: Docket, thing: Any) -> None:
    with pytest.raises(TypeError, match="cannot be a task"):
        docket.add(thing)


def test_a_lambda_needs_a_name(docket: Docket) -> None:
    with pytest.raises(TypeError, match="a lambda has no name"):
        docket.add(lambda: send(1))

    docket.register(lambda: send(1), names=["named"])


async def test_whatever_may_return_something_to_await_is_a_task(docket: Docket, worker: Worker) -> None:
    def in_a_shell(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def shell(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return shell

    def made_async(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def shell(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return shell

    def with_a_signature():  # type: ignore[no-untyped-def]
        return send(1)

    cast(Any, with_a_signature).__signature__ = inspect.Signature()

    def annotated() -> Awaitable[str]:
        return send(1)

    def vague() -> Any:
        return send(1)

    tasks: dict[str, Any] = {
        "in a shell": in_a_shell(functools.partial(send, 1)),
        "made async": made_async(functools.partial(blocking, 1)),
        "with a signature": with_a_signature,
        "annotated": annotated,
        "vague": vague,
        "partial": functools.partial(send, 1),
        "method": Service().send,
    }
    executions: dict[str, Execution] = {}
    for name, function in tasks.items():
        docket.register(function, names=[name])
        executions[name] = await docket.add(name)()
    await worker.run_until_finished()

    results = {name: str(await execution.get_result()) for name, execution in executions.items()}
    assert results == {name: "sent" if name == "method" else "1" for name in tasks}


# What looks like a dependency


async def class_for_an_instance(retry: Any = Retry) -> None: ...


async def function_for_its_value(docket: Any = CurrentDocket) -> None: ...


async def progress_class(progress: Any = Progress) -> None: ...


async def value_for_a_function(number: Any = Depends(SOON)) -> None: ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (class_for_an_instance, r"the default of 'retry' is Retry itself; call it: Retry\(…\)"),
        (function_for_its_value, r"the default of 'docket' is CurrentDocket itself; call it"),
        (progress_class, r"the default of 'progress' is Progress itself; call it"),
        (value_for_a_function, r"a dependency on 5, which is not a function; write Depends\(function\)"),
    ],
)
def test_a_default_that_only_looks_like_a_dependency_is_refused(docket: Docket, function: Any, told: str) -> None:
    with pytest.raises(ValueError, match=f"{function.__name__}: .*{told}"):
        docket.register(function)


def test_the_depends_of_fastapi_is_not_taken_for_ours(docket: Docket) -> None:
    foreign = type("Depends", (), {"__module__": "fastapi.params"})

    async def task(db: Any = foreign()) -> None: ...

    with pytest.raises(ValueError, match=r"task: the default of 'db' is FastAPI's Depends.*from docket import Depends"):
        docket.register(task)


# Arguments in the wrong place or of the wrong kind


@pytest.mark.parametrize("when", [1, timedelta(seconds=1), "tomorrow"])
def test_when_must_be_a_datetime(docket: Docket, when: Any) -> None:
    for verb in (docket.add, docket.call):
        with pytest.raises(TypeError, match=r"is not a datetime .*docket\.add\(send\)\(…\)"):
            verb(send, when)


def test_a_key_must_be_text(docket: Docket) -> None:
    key: Any = 7
    with pytest.raises(TypeError, match="key=7: the key of a task is text"):
        docket.add(send, key=key)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Retry(3, SOON), "Retry(delay=5)"),
        (lambda: ExponentialRetry(3, maximum_delay=SOON), "ExponentialRetry(maximum_delay=5)"),
        (lambda: Timeout(SOON), "Timeout(base=5)"),
        (lambda: Perpetual(every=SOON), "Perpetual(every=5)"),
        (lambda: Cooldown(SOON), "Cooldown(window=5)"),
        (lambda: RateLimit(1, per=SOON), "RateLimit(per=5)"),
        (lambda: Docket(execution_ttl=SOON), "Docket(execution_ttl=5)"),
        (lambda: Worker(Docket(), reconnection_delay=SOON), "Worker(reconnection_delay=5)"),
    ],
)
def test_a_number_is_no_duration(make: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()

    assert str(caught.value).startswith(f"{told}: a duration is a timedelta")


@pytest.mark.parametrize(
    ("args", "kwargs", "which"),
    [((1, threading.Lock()), {}, "argument 2, of type lock,"), ((1,), {"text": threading.Lock()}, "argument 'text'")],
)
async def test_an_argument_that_cannot_be_stored_is_named(
    docket: Docket, args: tuple[Any, ...], kwargs: dict[str, Any], which: str
) -> None:
    with pytest.raises(Unserializable) as caught:
        await docket.add(send)(*args, **kwargs)

    assert str(caught.value).startswith(f"send: {which}")


# Opening


async def test_a_docket_that_is_not_open_says_so(name: str, url: str) -> None:
    docket = Docket(name, url)

    async def use(*uses: Callable[[], Awaitable[object]]) -> None:
        for attempt in uses:
            with pytest.raises(NotOpen, match="use it inside `async with Docket"):
                await attempt()

    uses = (
        lambda: docket.add(send)(1),
        lambda: docket.add_many([docket.call(send)(1)]),
        lambda: docket.cancel("k"),
        docket.snapshot,
        lambda: docket.redis().__aenter__(),
    )
    await use(*uses)
    async with docket:
        execution = await docket.add(send)(1)
    await use(*uses, execution.get_result)

    assert issubclass(NotOpen, DocketError)
    assert issubclass(NotOpen, RuntimeError)


async def test_a_worker_that_is_not_open_says_so(docket: Docket) -> None:
    with pytest.raises(NotOpen, match="use it inside `async with Worker"):
        await Worker(docket).run_until_finished()


def test_a_worker_takes_a_docket_and_no_url() -> None:
    url: Any = "redis://localhost"
    with pytest.raises(TypeError, match=r"a worker takes an open docket; to start from a URL use Worker\.run"):
        Worker(url)


async def test_a_call_that_is_not_awaited_is_named_in_the_warning(docket: Docket) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        docket.add(send)(1)  # pyright: ignore[reportUnusedCoroutine] - on purpose
        gc.collect()

    assert "coroutine 'docket.add(send)' was never awaited" in [str(warning.message) for warning in caught]


def test_a_url_that_was_not_set_is_told() -> None:
    url: Any = None
    with pytest.raises(TypeError, match=r"url=None: the URL of a server is text"):
        Docket(url=url)


def test_a_database_is_a_number() -> None:
    with pytest.raises(UnknownScheme, match="the database in 'redis://localhost:6379/orders' is not a number"):
        Docket(url="redis://localhost:6379/orders")
