"""What observers show of the arguments: the texts of `Logged` ones, which the producer has written,
and nothing that has to be decoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from docket import Docket, Keyring, Logged, Perpetual, Worker
from docket.cli import app
from docket.codec.payloads import pack_headers, shown_arguments
from docket.execution.arguments import note_function, shower
from docket.inspection.live import Observer
from docket.ledger.queries import FoundTask, Source, TaskQuery
from tests.running import running, worker_at_work
from tests.times import later
from tests.waiting import eventually, within

KEYS = Keyring({"a": b"k" * 32})


TRACE_HEADERS = {"traceparent", "tracestate", "baggage"}


async def charge(
    customer: Annotated[int, Logged], secret: str, names: Annotated[Any, Logged(length_only=True)] = ()
) -> None: ...


async def plain(number: int) -> None: ...


def show_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, str]:
    note_function(function)
    show = shower(function)
    assert show is not None
    return show(args, kwargs)


async def the_row(docket: Docket, **options: Any) -> FoundTask:
    (row,) = (await docket.ledger.queries.find(Source.EVERY, TaskQuery(**options), None, 100, 100)).tasks
    return row


# What is stored


@pytest.mark.parametrize("options", [{}, {"codec": "json"}, {"signing": KEYS}], ids=["pickle", "json", "signed"])
async def test_logged_arguments_are_shown_and_others_are_not(name: str, url: str, options: dict[str, Any]) -> None:
    async with Docket(name, url, **options) as docket:
        await docket.add(charge, when=later())(7, "hush", names=["a", "b"])

        assert (await the_row(docket)).shown_arguments == {"customer": "7", "names": "[len 2]"}


@pytest.mark.parametrize("way", ["add", "add_many", "replace", "by name"])
async def test_every_way_to_add_a_task_stores_them(docket: Docket, way: str) -> None:
    docket.register(charge)
    if way == "add_many":
        await docket.add_many([docket.call(charge, when=later())(7, "hush")])
    elif way == "replace":
        await docket.add(charge, when=later(), key="k")(6, "hush")
        await docket.replace(charge, when=later(), key="k")(7, "hush")
    else:
        await docket.add("charge" if way == "by name" else charge, when=later())(7, "hush")

    assert (await the_row(docket)).shown_arguments == {"customer": "7"}


async def test_the_next_run_of_a_chain_shows_its_own_arguments(docket: Docket) -> None:
    async def count(number: Annotated[int, Logged], perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None:
        perpetual.perpetuate(number + 1)

    execution = await docket.add(count)(1)
    async with worker_at_work(docket):

        async def has_run() -> bool:
            return (await the_row(docket)).shown_arguments == {"number": "2"}

        await eventually(has_run, "the next run waits")
    assert execution.key


async def test_a_task_without_logged_parameters_stores_nothing_more(docket: Docket) -> None:
    await docket.add(plain, when=later(), key="k")(1)

    record = await docket.server.client.hget(docket.keys.tasks, "k")
    found = await docket.get_execution("k")
    assert found is not None
    # The call may have the trace of this test, and has nothing else.
    assert found.trace_context.keys() <= TRACE_HEADERS
    call = docket.payloads.seal_call("k", "plain", plain, (1,), {}, found.trace_context or None)
    assert record.endswith(b"plain" + call)
    assert (await the_row(docket)).shown_arguments is None


async def test_an_encrypted_docket_stores_no_text(name: str, url: str) -> None:
    async with Docket(name, url, signing=KEYS, encrypt=True) as docket:
        await docket.add(charge, when=later())(123456789, "hush")

        assert (await the_row(docket)).shown_arguments is None
        assert b"123456789" not in (await docket.server.client.hvals(docket.keys.tasks))[0]


async def test_arguments_that_are_stored_apart_are_shown_too(docket: Docket) -> None:
    await docket.add(charge, when=later())(7, "x" * 100_000)

    for options in ({}, {"function": "charge"}):
        row = await the_row(docket, **options)
        assert row.shown_arguments == {"customer": "7"}
        assert row.call_size > 100_000


async def test_the_worker_gets_the_trace_without_the_texts(docket: Docket) -> None:
    seen: list[Any] = []

    async def look(customer: Annotated[int, Logged]) -> None:
        seen.append(customer)

    execution = await docket.add(look, key="k")(7)
    found = await docket.get_execution("k")
    assert found is not None
    assert found.args == (7,)
    assert found.trace_context.keys() <= TRACE_HEADERS
    async with worker_at_work(docket):
        await within(execution.get_result())
    assert seen == [7]


# The texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        ("anna", "'anna'"),
        (None, "None"),
        (b"x", "b'x'"),
        (datetime(2026, 1, 2, tzinfo=UTC), "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)"),
        (UUID(int=1), "UUID('00000000-0000-0000-0000-000000000001')"),
        ([1, {"a": (2,)}], "[1, {'a': (2,)}]"),
        ("\ud800", "'\\ud800'"),
    ],
)
def test_an_argument_looks_as_in_a_log(value: Any, text: str) -> None:
    assert show_arguments(charge, (value, "hush"), {}) == {"customer": text}


class Endless:
    def __repr__(self) -> str:
        return "e" * 1_000_000


class Shy:
    def __repr__(self) -> str:
        raise RuntimeError("do not look at me")


LARGE: dict[str, Any] = {
    "text": "x" * 10_000_000,
    "list": list(range(1_000_000)),
    "number": 10**100_000,
    "endless": Endless(),
    "shy": Shy(),
    "deep": [[[[[[1]]]]]],
}


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_a_text_is_short_whatever_the_argument_is(value: Any) -> None:
    (text,) = show_arguments(charge, (value, "hush"), {}).values()
    assert len(text) <= 200


def test_all_texts_together_are_short() -> None:
    names = ", ".join(f"p{number}: Annotated[str, Logged] = ''" for number in range(30))
    found: dict[str, Any] = {"Annotated": Annotated, "Logged": Logged}
    exec(f"async def wide({names}) -> None: ...", found)
    shown = show_arguments(found["wide"], (), {f"p{number}": "x" * 150 for number in range(30)})

    assert len(shown) == 20
    assert len(pack_headers(None, shown)) < 1_400
    assert shown["p0"] == repr("x" * 150)
    assert shown["p19"] == "…"


class Masked(Logged):
    def format(self, argument: Any) -> str:
        return "***"


async def pay(card: Annotated[str, Masked()]) -> None: ...


def test_a_logged_of_the_users_own_formats_its_arguments() -> None:
    assert show_arguments(pay, ("4111",), {}) == {"card": "***"}


def test_arguments_are_found_however_they_are_passed() -> None:
    found: dict[str, Any] = {"Annotated": Annotated, "Logged": Logged}
    exec(
        "async def many(a: Annotated[int, Logged], /, b, *rest: Annotated[int, Logged], c: Annotated[int, Logged] = 0,"
        " **more: Annotated[int, Logged]) -> None: ...",
        found,
    )
    show = partial(show_arguments, found["many"])
    assert show((1, 2), {}) == {"a": "1"}
    assert show((1, 2, 3, 4), {"c": 5, "d": 6}) == {"a": "1", "rest": "(3, 4)", "c": "5"}
    assert show_arguments(charge, (), {"customer": 7, "secret": "hush"}) == {"customer": "7"}


@pytest.mark.parametrize(
    "call",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\5\0",
        b"\1\0\xc1",
        b"\1\0\xc0",
        b"\3\0abc",
        pack_headers({"docket.arguments": "text"}, None),
        pack_headers({"traceparent": "x"}, None),
    ],
)
def test_headers_that_are_damaged_or_missing_show_nothing(call: bytes) -> None:
    assert shown_arguments(call + b"rest" * (len(call) > 4)) is None


# Observers


async def test_snapshot_and_top_show_them(docket: Docket, worker: Worker) -> None:
    async def stay(customer: Annotated[str, Logged]) -> None:
        await eventually(lambda: False, "it is cancelled")

    execution = await docket.add(stay)("anna")
    observer = Observer(docket)
    async with running(worker), observer.listening():

        async def runs() -> bool:
            await observer.refresh()
            return bool(observer.state.running)

        await eventually(runs, "the task runs")
        assert [task.arguments for task in observer.state.running] == ["customer='anna'"]
        await docket.cancel(execution.key)


@pytest.fixture
def command(tmp_path: Any) -> Callable[..., str]:
    def invoke(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--url", f"embedded://{tmp_path}/data"])
        assert result.exit_code == 0, result.output
        return result.output

    return invoke


def test_the_command_line_shows_them(command: Callable[..., str]) -> None:
    command("tasks", "trace", "hello \x1b[31m", "--key", "k")

    (task,) = json.loads(command("snapshot", "--json"))["tasks"]
    assert task["arguments"] == {"message": r"'hello \x1b[31m'"}
    shown = command("snapshot")
    assert "message=" in shown
    assert "\x1b" not in shown
