"""Paged questions: by state, function, key and time."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, ExecutionState, Worker
from docket.ledger.queries import FoundTask, Source, TaskQuery
from docket.model.times import to_ms
from tests.running import at_work

HOUR = timedelta(hours=1)


async def note(number: int) -> None: ...


async def other(number: int, data: bytes = b"") -> None: ...


async def stumble() -> None:
    raise LookupError("as it should")


EVERY, SCHEDULED = Source.EVERY, Source.SCHEDULED


async def all_rows(docket: Docket, source: Source = EVERY, **query: Any) -> list[FoundTask]:
    return [row async for page in docket.ledger.queries.all(source, TaskQuery(**query)) for row in page]


async def keys(docket: Docket, source: Source = EVERY, **query: Any) -> set[str]:
    return {row.key for row in await all_rows(docket, source, **query)}


@pytest.fixture
async def many(docket: Docket) -> Docket:
    now = docket.now()
    calls = [docket.call(note, key=f"ready:{i}")(i) for i in range(700)]
    calls += [docket.call(other, when=now + HOUR * (i + 1), key=f"later:{i:03}")(i) for i in range(800)]
    await docket.add_many(calls)
    return docket


async def test_everything_is_found_once(many: Docket) -> None:
    rows = await all_rows(many)

    assert len(rows) == len({row.key for row in rows}) == 1_500


async def test_by_state(many: Docket) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def long() -> None:
        begun.set()
        await go.wait()

    await many.clear()
    await many.add(note, when=many.now() + HOUR, key="later")(1)
    await many.add(long, key="running")()
    async with Worker(many, concurrency=1, name="here") as worker, at_work(worker):
        await begun.wait()
        await many.add(note, key="ready")(2)

        assert await keys(many, SCHEDULED) == {"later"}
        assert await keys(many, Source.QUEUED) == {"ready"}
        [running] = await all_rows(many, Source.RUNNING)
        assert (running.key, running.state) == ("running", ExecutionState.RUNNING)
        assert running.run is not None
        assert running.run.worker.startswith("here~")
        go.set()


async def test_by_function_and_by_key(many: Docket) -> None:
    assert len(await all_rows(many, function="note")) == 700
    assert await keys(many, key_prefix="later:00") == {f"later:00{i}" for i in range(10)}
    assert await keys(many, function="note", key_prefix="later") == set()
    assert await keys(many, SCHEDULED, key_prefix="later:79") == {f"later:79{i}" for i in range(10)}


async def test_by_time_in_the_order_of_time(many: Docket) -> None:
    begin = to_ms(many.now() + HOUR * 100.5)
    end = to_ms(many.now() + HOUR * 700.5)

    rows = await all_rows(many, SCHEDULED, due_from_ms=begin, due_before_ms=end)

    assert [row.key for row in rows] == [f"later:{i:03}" for i in range(100, 700)]
    unordered = await keys(many, due_from_ms=begin, due_before_ms=end)
    assert unordered == {row.key for row in rows}


async def test_pages_go_on_where_the_last_ended(many: Docket) -> None:
    found: list[str] = []
    cursor: bytes | None = None
    while True:
        page = await many.ledger.queries.find(SCHEDULED, TaskQuery(), cursor, 70, 70)
        assert len(page.tasks) <= 70
        found += [row.key for row in page.tasks]
        cursor = page.cursor
        if cursor is None:
            break

    assert found == [f"later:{i:03}" for i in range(800)]


async def test_a_page_goes_on_also_if_the_task_it_ended_with_has_left(many: Docket) -> None:
    first = await many.ledger.queries.find(SCHEDULED, TaskQuery(), None, 10, 10)
    await many.cancel(first.tasks[-1].key)

    second = await many.ledger.queries.find(SCHEDULED, TaskQuery(), first.cursor, 10, 10)

    assert [row.key for row in second.tasks] == [f"later:{i:03}" for i in range(10, 20)]


async def test_many_tasks_of_one_time_are_paged_too(docket: Docket) -> None:
    when = docket.now() + HOUR
    await docket.add_many([docket.call(note, when=when, key=f"k{i:04}")(i) for i in range(1_200)])

    assert len(await keys(docket, SCHEDULED)) == 1_200


async def test_a_question_that_fits_little_answers_in_steps(many: Docket) -> None:
    await many.add(note, key="needle")(0)
    cursor: bytes | None = None
    found: set[str] = set()
    while True:
        page = await many.ledger.queries.find(EVERY, TaskQuery(key_prefix="needle"), cursor, 5, 50)
        found |= {row.key for row in page.tasks}
        if (cursor := page.cursor) is None:
            break

    assert found == {"needle"}


@pytest.mark.parametrize("size", [3_000, 10_000])
async def test_arguments_are_cut_off_unless_asked_for(docket: Docket, size: int) -> None:
    await docket.add(other, key="k")(1, data=b"x" * size)

    [[cut]] = [page async for page in docket.ledger.queries.all(EVERY, TaskQuery("other"))]
    [[whole]] = [page async for page in docket.ledger.queries.all(EVERY, TaskQuery("other"), with_calls=True)]

    assert len(cut.record) < 100
    assert cut.call_size == whole.call_size == len(whole.task.call) > size


async def test_large_arguments_make_small_pages(docket: Docket) -> None:
    await docket.add_many([docket.call(other, key=f"k{i}")(i, data=b"x" * 100_000) for i in range(300)])

    largest = 0
    async for page in docket.ledger.queries.all(with_calls=True):
        largest = max(largest, sum(len(row.record) for row in page))

    assert largest < 3_000_000
    assert len(await keys(docket)) == 300


async def test_counts_by_function_and_state(many: Docket) -> None:
    counts = await many.ledger.queries.count_by_function()

    assert set(counts) == {"note", "other"}
    assert (counts["note"].queued, counts["note"].scheduled, counts["note"].running) == (700, 0, 0)
    assert (counts["other"].queued, counts["other"].scheduled) == (0, 800)
    assert counts["other"].earliest_due_ms > to_ms(many.now())


async def test_finished_tasks_by_state_function_and_key(docket: Docket, worker: Worker) -> None:
    for i in range(20):
        await docket.add(note, key=f"done:{i}")(i)
    await docket.add(stumble, key="failed*[1]")()
    await docket.add(note, when=docket.now() + HOUR, key="gone")(1)
    await docket.cancel("gone")
    await worker.run_until_finished()

    everything = await docket.ledger.queries.finished(size=100)
    failed = await docket.ledger.queries.finished(state=ExecutionState.FAILED)
    named = await docket.ledger.queries.finished(function="note", key_prefix="done:1")
    odd = await docket.ledger.queries.finished(key_prefix="failed*[")

    assert len(everything.rows) == 22
    assert everything.cursor is None
    [row] = failed.rows
    assert (row.key, row.head.state, row.head.task.function_name) == ("failed*[1]", ExecutionState.FAILED, "stumble")
    assert abs(row.head.completed_ms - to_ms(docket.now())) < 60_000
    assert {row.key for row in named.rows} == {"done:1", *(f"done:{i}" for i in range(10, 20))}
    assert [row.key for row in odd.rows] == ["failed*[1]"]


async def test_odd_keys_and_names_come_back_as_they_are(docket: Docket) -> None:
    odd = ["", "a:b%c", "\x00", "*", "{x}", "\ud800", "x" * 512]
    for key in odd:
        await docket.add(note, when=docket.now() + HOUR, key=key)(1)

    assert await keys(docket) == set(odd)
    assert await keys(docket, SCHEDULED) == set(odd)
    assert await keys(docket, key_prefix="a:b%") == {"a:b%c"}
