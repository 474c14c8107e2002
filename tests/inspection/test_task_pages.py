"""Pages of tasks: their order, their filters and their cursors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from datetime import timedelta
from typing import Annotated

import pytest

from docket import ConcurrencyLimit, Docket, Logged, Worker
from docket.inspection.filters import GROUPS, TaskFilter, read_filter
from docket.inspection.summaries import TaskSummary
from docket.inspection.tasks import count_tasks, find_oldest, find_page
from docket.model.places import Place
from tests.running import at_work
from tests.waiting import eventually

HOUR = timedelta(hours=1)


async def note(number: int) -> None: ...


async def mail(customer: Annotated[int, Logged()], text: str = "") -> None: ...


async def named(order: Annotated[str, Logged()]) -> None: ...


async def stumble() -> None:
    raise LookupError("as it should")


async def all_pages(docket: Docket, filter: TaskFilter | None = None, size: int = 7) -> list[TaskSummary]:
    found: list[TaskSummary] = []
    cursor = None
    while True:
        page = await find_page(docket, filter, cursor=cursor, size=size)
        found += page.tasks
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.fixture
async def many(docket: Docket) -> Docket:
    now = docket.now()
    await docket.add_many(docket.call(note, key=f"ready-{i:03}")(i) for i in range(60))
    await docket.add_many(docket.call(mail, when=now + HOUR * (60 - i), key=f"later-{i:03}")(i % 5) for i in range(60))
    return docket


async def test_every_task_is_on_one_page_in_the_order_in_which_tasks_run(many: Docket) -> None:
    keys = [task.key for task in await all_pages(many)]

    assert keys == [f"ready-{i:03}" for i in range(60)] + [f"later-{i:03}" for i in reversed(range(60))]


async def test_a_page_says_how_far_it_has_come(many: Docket) -> None:
    first = await find_page(many, size=50)
    assert (len(first.tasks), first.examined, first.total) == (50, 50, 120)
    second = await find_page(many, size=500, cursor=first.cursor)
    assert (len(second.tasks), second.examined, second.cursor) == (70, 120, None)


async def test_filters(many: Docket) -> None:
    async def keys(text: str) -> list[str]:
        return [task.key for task in await all_pages(many, read_filter(text))]

    assert len(await keys("function:mail")) == 60
    assert await keys("prefix:ready-00") == [f"ready-{i:03}" for i in range(10)]
    assert await keys("contains:y-05 state:queued") == [f"ready-{i:03}" for i in range(50, 60)]
    assert await keys("-012") == ["ready-012", "later-012"]
    assert len(await keys("customer:3")) == 12
    assert len(await keys("argument:customer=3 state:scheduled")) == 12
    assert await keys("customer:33") == []
    assert await keys("customer:'3'") == await keys("customer:3")
    await many.add(named, key="named")("bill-1")
    assert await keys("order:bill-1") == await keys("argument:order=\\'bill-1\\'") == ["named"]
    await many.cancel("named")
    assert await keys("key:later-007") == ["later-007"]
    assert await keys("key:later-007 function:note") == []
    assert len(await keys("younger:1h")) == 120
    assert len(await keys("older:0s")) == 60
    assert await keys("worker:nobody") == []


async def test_a_filter_that_matches_nothing_has_pages_too_if_time_is_short(many: Docket) -> None:
    filter, cursor, pages = read_filter("function:nothing"), None, 0
    while True:
        page = await find_page(many, filter, cursor=cursor, patience=timedelta(0))
        assert page.tasks == ()
        pages += 1
        if page.cursor is None:
            break
        cursor = page.cursor
    assert pages > 1
    assert page.examined == 120


async def test_where_tasks_are(docket: Docket) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def one(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        begun.set()
        await go.wait()

    docket.register(stumble)
    await docket.pause(note)
    await docket.add(note, key="held")(1)
    failed = await docket.add(stumble, key="failed")()
    await docket.add(one, key="running")(7)
    async with Worker(docket, name="here") as worker, at_work(worker):
        await begun.wait()
        await docket.add(one, key="parked")(7)
        with pytest.raises(LookupError):
            await failed.get_result()

        expected = {"held": Place.HELD, "failed": Place.FAILED, "running": Place.RUNNING, "parked": Place.PARKED}

        async def are_there() -> bool:
            found = await all_pages(docket, read_filter("state:unfinished,finished"))
            return {task.key: task.place for task in found} == expected

        await eventually(are_there, "all tasks are where they belong")
        [running] = await all_pages(docket, read_filter("worker:here"))
        assert (running.key, running.worker) == ("running", "here")
        [parked] = await all_pages(docket, read_filter("state:parked"))
        assert "customer" in parked.limits[-1]
        [held] = await all_pages(docket, read_filter("state:held"))
        assert held.held_by == "=note"
        [ended] = await all_pages(docket, read_filter("state:failed"))
        assert "LookupError" in (ended.error or "")
        go.set()


async def test_finished_tasks_come_once_and_those_of_the_history_come_first(docket: Docket) -> None:
    docket.register(stumble)
    for n in range(12):
        await (docket.add(stumble, key=f"task-{n:02}")() if n % 3 == 0 else docket.add(mail, key=f"task-{n:02}")(n))
        async with Worker(docket) as worker:
            await worker.run_until_finished()
    history = [run.key for run in await docket.history()]

    whole = await all_pages(docket, read_filter("state:finished"), size=50)
    paged = await all_pages(docket, read_filter("state:finished"), size=5)

    assert [task.key for task in whole[: len(history)]] == history
    assert (
        sorted(task.key for task in whole) == sorted(task.key for task in paged) == [f"task-{n:02}" for n in range(12)]
    )
    failed = await all_pages(docket, read_filter("state:failed contains:0"))
    assert [task.key for task in failed] == ["task-09", "task-06", "task-03", "task-00"]
    assert len(await all_pages(docket, read_filter("state:completed customer:7"))) == 1
    assert await all_pages(docket, read_filter("state:completed worker:here")) == []


async def test_finished_tasks_that_have_expired_are_not_listed(docket: Docket) -> None:
    await docket.add(note, key="one")(1)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    await docket.ledger.server.ask(
        docket.ledger.keys.run("one").encode(), "DEL", docket.ledger.keys.run("one").encode()
    )
    assert [run.key for run in await docket.history()] == ["one"]
    assert await all_pages(docket, read_filter("state:finished")) == []


@pytest.mark.parametrize("text", ["AAAA", "", "?", "é", "__________8", "x" * 1000])
async def test_a_text_that_is_not_a_cursor_is_refused(docket: Docket, text: str) -> None:
    with pytest.raises(ValueError, match="not a cursor"):
        await find_page(docket, cursor=text)


@pytest.mark.parametrize("stage", range(9))
@pytest.mark.parametrize("within", [b"x", b"1-", b"-", b"nan x", b"1e x y", b"(1 x", b"1" * 30, b"\xff\x00", b"1.5"])
async def test_a_cursor_that_somebody_made_up_is_refused_or_reads(docket: Docket, stage: int, within: bytes) -> None:
    await docket.add(note, key="ready")(1)
    await docket.add(note, when=docket.now() + HOUR, key="later")(1)
    cursor = base64.urlsafe_b64encode(bytes([stage]) + b"\0" * 6 + within).decode()
    with contextlib.suppress(ValueError):
        await find_page(docket, read_filter("state:unfinished,finished"), cursor=cursor)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("state:nowhere", "no such state"),
        ("older:soon", "not an age"),
        ("older:-5m", "negative"),
        ("function:a function:b", "two values"),
        ("function:", "no value"),
        ("argument:x", "NAME=TEXT"),
        ('key:"x', "quote"),
    ],
)
def test_a_text_that_is_not_a_filter_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_filter(text)


@pytest.mark.parametrize(
    "filter",
    [
        TaskFilter(),
        TaskFilter(places=GROUPS["queued"], function="a b"),
        TaskFilter(places=frozenset((Place.HELD,)), key="it's", worker="w"),
        TaskFilter(key_prefix="p", key_part="q", argument=("customer", "7 8"), older=HOUR, younger=HOUR * 2),
    ],
)
def test_a_filter_reads_as_it_is_written(filter: TaskFilter) -> None:
    assert read_filter(str(filter)) == filter


async def test_tasks_are_counted_exactly_if_there_is_time(many: Docket) -> None:
    everything = await count_tasks(many)
    assert (everything.count, everything.is_exact) == (120, True)
    some = await count_tasks(many, read_filter("customer:3"), patience=HOUR)
    assert (some.count, some.is_exact, some.examined, some.total) == (12, True, 120, 120)
    hurried = await count_tasks(many, read_filter("customer:3"), patience=timedelta(0))
    assert (hurried.count, hurried.is_exact) == (0, False)


async def test_the_tasks_that_have_been_ready_longest(many: Docket) -> None:
    assert [task.key for task in await find_oldest(many, 3)] == ["ready-000", "ready-001", "ready-002"]
