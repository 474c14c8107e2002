"""When a task was added, and what it had waited for: what the page of a task says about times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from docket import Docket, Retry, Worker
from docket.inspection.task import MomentKind, added_at, explain_wait, read_task_view
from docket.model.task_keys import new_key
from docket.model.times import to_ms
from docket.storage.records import TaskRecord
from docket.storage.schema import locations
from docket.storage.schema.statistics import MINUTE_MS
from tests.times import later

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


async def note(number: int = 0) -> None: ...


async def flaky(retry: Retry = Retry(attempts=2)) -> None:
    if retry.attempt == 1:
        raise LookupError("once")


async def added(docket: Docket, key: str) -> datetime | None:
    view = await read_task_view(docket, key)
    assert view is not None
    moments = [moment for moment in view.timeline if moment.kind is MomentKind.ADDED]
    assert [moment.at for moment in moments] == ([view.details.added_at] if view.details.added_at else [])
    return view.details.added_at


async def test_the_time_line_has_when_a_task_was_added_all_its_life(docket: Docket) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    keys = [(await docket.add(note, when=when, key=key)()).key for when, key in ((None, None), (None, "own"))]
    keys.append((await docket.add(flaky)()).key)
    scheduled = (await docket.add(note, when=later())()).key
    times = {key: await added(docket, key) for key in (*keys, scheduled)}
    for time in times.values():
        assert time is not None
        assert before <= time <= datetime.now(UTC) + timedelta(seconds=5)
    async with Worker(docket) as worker:
        await docket.cancel(scheduled)
        await worker.run_until_finished()
    for key in keys:
        found = await added(docket, key)
        assert found is not None
        assert abs(found - (times[key] or found)) < timedelta(milliseconds=1)


async def test_a_task_with_a_key_of_its_own_for_later_has_no_such_time(docket: Docket) -> None:
    await docket.add(note, when=later(), key="own")()
    assert await added(docket, "own") is None


def record(submission: int, entry_ms: float = 0.0) -> TaskRecord:
    return TaskRecord(0, 1, 0, 1, 0.0, entry_ms, 0, "note", b"", submission=submission)


def test_a_key_that_somebody_made_long_before_is_not_the_time_of_the_add() -> None:
    now_us = int(datetime.now(UTC).timestamp() * 1_000_000)
    assert added_at(new_key(), record(now_us % 2**32)) is not None
    assert added_at(new_key(), record((now_us + 600_000_000) % 2**32)) is None
    # The submission is one of a minute ago, the entry one of now: the task was scheduled before.
    assert added_at("own", record((now_us - 60_000_000) % 2**32, now_us // 1000)) is None
    assert added_at("own", record(now_us % 2**32, now_us // 1000)) is not None
    # Numbers of submissions begin again every 71 minutes.
    for us in (2**32 * 400_000, 2**32 * 400_000 - 1, 2**32 * 400_000 + 1):
        found = added_at("own", record(us % 2**32, us // 1000))
        assert found is not None
        assert abs(to_ms(found) * 1000 - us) < 1


async def sample(docket: Docket, at: datetime, *counts: int) -> None:
    key, ms = docket.ledger.keys.stats_samples, int(to_ms(at))
    unfinished, running, ended, *others = counts
    places = (f"{name}={count}" for name, count in zip(locations.COUNTED, others, strict=True))
    text = " ".join([*(str(number) for number in (ms, unfinished, running, ended)), *places])
    await docket.ledger.server.ask(key.encode(), "ZADD", key.encode(), int(ms // MINUTE_MS), text.encode())


async def test_what_a_task_had_to_wait_for(docket: Docket) -> None:
    due, started = NOON, NOON + timedelta(seconds=90)
    assert await explain_wait(docket, due, started) is None
    # Unfinished, running, ended, parked, unknown, held, scheduled.
    await sample(docket, NOON, 1204 + 16 + 3, 16, 0, 3, 0, 0, 0)
    await sample(docket, NOON + timedelta(minutes=1), 16 + 5, 16, 0, 0, 0, 5, 0)
    assert await explain_wait(docket, due, started) == (
        "On the docket at that time: 1,204 were ready and 16 ran, 3 waited for a limit, 5 were held by a pause."
    )
    assert await explain_wait(docket, due, due + timedelta(milliseconds=900)) is None
    gap = await explain_wait(docket, due - timedelta(minutes=5), started)
    assert gap is not None
    assert "For about 5 minutes no worker took a sample" in gap


async def test_damaged_samples_are_left_out(docket: Docket) -> None:
    key = docket.ledger.keys.stats_samples.encode()
    places = "parked=1 unknown_function=2 held=3 scheduled=4"
    for minute, text in enumerate(
        ("", "1 20 5", "1 20 5 0", "1 20 5 0 parked=1 held=3 scheduled=4", f"1 20 x 0 {places}", f"1 20 5 0 {places} =")
    ):
        await docket.ledger.server.ask(key, "ZADD", key, minute, text.encode())
    assert await docket.ledger.statistics.samples(0, 100) == []
    # Names, not positions: the order does not matter, and a newer release may count another place.
    text = "1 20 5 0 asleep=2 scheduled=4 held=3 unknown_function=2 parked=1"
    await docket.ledger.server.ask(key, "ZADD", key, 50, text.encode())
    (sample,) = await docket.ledger.statistics.samples(0, 100)
    assert (sample.parked, sample.unknown, sample.held, sample.scheduled, sample.ready) == (1, 2, 3, 4, 3)
