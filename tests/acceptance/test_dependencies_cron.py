"""Tasks that run by the calendar."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from docket import Cron, CurrentExecution, Docket, Execution, ExecutionState
from docket.dependencies import plan_for
from docket.testing import Clock
from tests.running import run_everything, running, worker_for
from tests.waiting import ends, wait_until_scheduled

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


async def slots(docket: Docket, expression: str, start: datetime, count: int, tz: tzinfo = UTC) -> list[datetime]:
    """When the task of this expression runs first, seeded by a worker that starts then."""
    times: list[datetime] = []

    async def tick(cron: Cron = Cron(expression, tz=tz)) -> None:
        times.append(docket.now())
        if len(times) == count:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=start):
        await run_everything(docket)
    return [time.replace(microsecond=0) for time in times]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-01-14T10:18", "2026-01-14T10:19", "2026-01-14T10:20"]),
        ("*/15 * * * *", ["2026-01-14T10:30", "2026-01-14T10:45", "2026-01-14T11:00"]),
        ("5,35 * * * *", ["2026-01-14T10:35", "2026-01-14T11:05", "2026-01-14T11:35"]),
        ("0 9-11 * * *", ["2026-01-14T11:00", "2026-01-15T09:00", "2026-01-15T10:00"]),
        ("30 4 * * 1", ["2026-01-19T04:30", "2026-01-26T04:30", "2026-02-02T04:30"]),
        ("30 4 * * mon", ["2026-01-19T04:30", "2026-01-26T04:30", "2026-02-02T04:30"]),
        ("0 0 * * 0", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("0 0 * * 7", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("0 0 31 * *", ["2026-01-31T00:00", "2026-03-31T00:00", "2026-05-31T00:00"]),
        ("0 0 29 2 *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 12 1 */3 *", ["2026-04-01T12:00", "2026-07-01T12:00", "2026-10-01T12:00"]),
        ("0 0 20 * 5", ["2026-01-16T00:00", "2026-01-20T00:00", "2026-01-23T00:00"]),
        ("0 0 1 jan,jul *", ["2026-07-01T00:00", "2027-01-01T00:00", "2027-07-01T00:00"]),
        ("@hourly", ["2026-01-14T11:00", "2026-01-14T12:00", "2026-01-14T13:00"]),
        ("@daily", ["2026-01-15T00:00", "2026-01-16T00:00", "2026-01-17T00:00"]),
        ("@midnight", ["2026-01-15T00:00", "2026-01-16T00:00", "2026-01-17T00:00"]),
        ("@weekly", ["2026-01-18T00:00", "2026-01-25T00:00", "2026-02-01T00:00"]),
        ("@monthly", ["2026-02-01T00:00", "2026-03-01T00:00", "2026-04-01T00:00"]),
        ("@yearly", ["2027-01-01T00:00", "2028-01-01T00:00", "2029-01-01T00:00"]),
        ("@annually", ["2027-01-01T00:00", "2028-01-01T00:00", "2029-01-01T00:00"]),
    ],
)
async def test_a_task_runs_at_the_times_of_its_expression(docket: Docket, expression: str, expected: list[str]) -> None:
    start = datetime(2026, 1, 14, 10, 17, 30, tzinfo=UTC)

    seen = await slots(docket, expression, start, 3)

    assert [time.isoformat()[:16] for time in seen] == expected


@pytest.mark.parametrize("expression", ["", "* * * *", "61 * * * *", "* 25 * * *", "@fortnightly", "a b c d e"])
def test_an_expression_that_means_nothing_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the wording is free
        Cron(expression)


async def test_the_times_are_those_of_the_zones_clocks(docket: Docket) -> None:
    start = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 2, NEW_YORK)

    assert seen == [datetime(2026, 1, 14, 14, 0, tzinfo=UTC), datetime(2026, 1, 15, 14, 0, tzinfo=UTC)]


async def test_a_fixed_offset_is_a_zone_too(docket: Docket) -> None:
    start = datetime(2026, 1, 14, 0, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 1, timezone(timedelta(hours=5, minutes=30)))

    assert seen == [datetime(2026, 1, 14, 3, 30, tzinfo=UTC)]


async def test_nine_in_the_morning_stays_nine_when_summer_time_begins(docket: Docket) -> None:
    start = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 3, BERLIN)

    assert [time.isoformat()[:16] for time in seen] == ["2026-03-28T08:00", "2026-03-29T07:00", "2026-03-30T07:00"]


async def test_nine_in_the_morning_stays_nine_when_summer_time_ends(docket: Docket) -> None:
    start = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "0 9 * * *", start, 3, BERLIN)

    assert [time.isoformat()[:16] for time in seen] == ["2026-10-24T07:00", "2026-10-25T08:00", "2026-10-26T08:00"]


async def test_an_hour_that_comes_twice_is_one_slot(docket: Docket) -> None:
    start = datetime(2026, 10, 23, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "30 2 * * *", start, 3, BERLIN)

    assert [time.astimezone(BERLIN).isoformat()[:16] for time in seen] == [
        "2026-10-24T02:30",
        "2026-10-25T02:30",
        "2026-10-26T02:30",
    ]


async def test_an_hour_that_is_left_out_does_not_stop_the_days_after(docket: Docket) -> None:
    start = datetime(2026, 3, 27, 12, 0, tzinfo=UTC)

    seen = await slots(docket, "30 2 * * *", start, 4, BERLIN)

    local = [time.astimezone(BERLIN).isoformat()[:16] for time in seen]
    assert local[0] == "2026-03-28T02:30"
    assert "2026-03-30T02:30" in local
    assert len({text[:10] for text in local}) == 4


async def test_every_hour_is_every_hour_also_when_summer_time_ends(docket: Docket) -> None:
    start = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)

    seen = await slots(docket, "0 * * * *", start, 5, BERLIN)

    assert [time.isoformat()[11:16] for time in seen] == ["23:00", "00:00", "01:00", "02:00", "03:00"]


async def test_every_hour_is_every_hour_also_when_summer_time_begins(docket: Docket) -> None:
    start = datetime(2026, 3, 28, 22, 30, tzinfo=UTC)

    seen = await slots(docket, "0 * * * *", start, 5, BERLIN)

    assert [time.isoformat()[11:16] for time in seen] == ["23:00", "00:00", "01:00", "02:00", "03:00"]


async def test_a_worker_that_starts_seeds_the_task_for_its_slot_and_does_not_run_it(docket: Docket) -> None:
    ran: list[int] = []

    async def tick(cron: Cron = Cron("0 0 1 1 *")) -> None:
        ran.append(1)

    docket.register(tick)

    async with worker_for(docket) as worker, running(worker):
        coming = await wait_until_scheduled(docket, "tick")

    assert ran == []
    assert (coming.when.month, coming.when.day, coming.when.hour) == (1, 1, 0)
    assert coming.when > datetime.now(UTC)


async def test_a_task_that_is_not_automatic_is_not_seeded(docket: Docket) -> None:
    ran: list[int] = []

    async def tick(cron: Cron = Cron("* * * * *", automatic=False)) -> None:
        ran.append(1)

    docket.register(tick)
    await run_everything(docket)

    assert ran == []
    assert await docket.get_execution("tick") is None


async def test_a_task_added_by_hand_runs_and_then_keeps_to_its_slots(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        times.append(docket.now())
        if len(times) == 2:
            cron.cancel()

    with Clock(docket, at=datetime(2026, 1, 14, 10, 17, tzinfo=UTC)):
        await docket.add(tick, key="k")()
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:17", "11:00"]


async def test_a_run_that_outlasts_its_slot_is_followed_by_that_slot(docket: Docket) -> None:
    times: list[datetime] = []

    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)) as clock:

        async def tick(cron: Cron = Cron("*/5 * * * *")) -> None:
            times.append(docket.now())
            if len(times) == 1:
                clock.set(datetime(2026, 1, 14, 10, 7, tzinfo=UTC))
            if len(times) == 3:
                cron.cancel()

        docket.register(tick)
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "10:07", "10:10"]


async def test_a_late_run_makes_up_for_all_slots_that_were_missed(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        times.append(docket.now())
        if len(times) == 2:
            cron.cancel()

    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)) as clock:
        await docket.add(tick, when=datetime(2026, 1, 14, 10, 0, tzinfo=UTC), key="k")()
        clock.set(datetime(2026, 1, 14, 15, 20, tzinfo=UTC))
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["15:20", "16:00"]


async def test_a_slot_runs_once_also_where_the_workers_clock_is_behind(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[datetime] = []

    async def tick(cron: Cron = Cron("* * * * *", automatic=False), execution: Execution = CurrentExecution()) -> None:
        ran.append(execution.when)
        if len(ran) == 3:
            cron.cancel()

    slot = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)
    with Clock(docket, at=slot - timedelta(seconds=2)):
        await docket.add(tick, when=slot, key="k")()
        async with worker_for(docket) as worker:
            right_time = worker.now
            monkeypatch.setattr(worker, "now", lambda: right_time() - timedelta(milliseconds=300))
            await ends(worker.run_until_finished())

    assert ran == [slot, slot + timedelta(minutes=1), slot + timedelta(minutes=2)]


async def test_a_month_of_missed_minutes_takes_no_time(docket: Docket) -> None:
    async def tick(cron: Cron = Cron("* * * * *")) -> None: ...

    cron = plan_for(tick).single(Cron)
    assert cron is not None
    slots: list[datetime] = []
    counted = cron.slot_after
    cron.slot_after = lambda moment: slots.append(counted(moment)) or slots[-1]
    start = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)
    with Clock(docket, at=start) as clock:
        await docket.add(tick, when=start + timedelta(seconds=1), key="tick")()
        clock.set(start + timedelta(days=30))
        async with worker_for(docket) as worker:
            await ends(worker.run_at_most({"tick": 1}))

    assert len(slots) <= 3


def test_next_time_tells_one_time_after_the_other() -> None:
    cron = Cron("0 9 * * *", tz=BERLIN)

    first, second = cron.next_time(), cron.next_time()

    assert first > datetime.now(UTC)
    assert (first.tzinfo, first.hour, second.hour) == (BERLIN, 9, 9)
    assert second.date() == first.date() + timedelta(days=1)


class Workdays(Cron):
    """Not at weekends."""

    def next_time(self) -> datetime:
        while True:
            time = super().next_time()
            if time.weekday() < 5:
                return time


async def test_an_overridden_next_time_decides_from_the_first_run_on(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Workdays = Workdays("0 12 * * *")) -> None:
        times.append(docket.now())
        if len(times) == 3:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 17, 8, 0, tzinfo=UTC)) as clock:
        assert clock.now().weekday() == 5
        await run_everything(docket)

    assert [time.isoformat()[:10] for time in times] == ["2026-01-19", "2026-01-20", "2026-01-21"]


async def test_a_patched_next_time_is_obeyed(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 0 1 1 *")) -> None:
        times.append(docket.now())
        if len(times) == 3:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 10, 0, tzinfo=UTC)):
        monkeypatch.setattr(Cron, "next_time", lambda self: docket.now() + timedelta(seconds=7))
        await run_everything(docket)

    assert [time.isoformat()[11:19] for time in times] == ["10:00:07", "10:00:14", "10:00:21"]


async def test_asking_for_the_next_time_in_a_run_does_not_skip_it(docket: Docket) -> None:
    times: list[datetime] = []
    announced: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *")) -> None:
        times.append(docket.now())
        announced.append(cron.next_time())
        if len(times) == 2:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "11:00"]
    assert announced[0].isoformat()[11:16] == "11:00"


async def test_seeding_again_does_not_move_the_time_on(docket: Docket) -> None:
    async def tick(cron: Cron = Cron("0 * * * *")) -> None: ...

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        for _ in range(3):
            async with worker_for(docket) as worker, running(worker):
                coming = await wait_until_scheduled(docket, "tick")
            assert coming.when.isoformat()[11:16] == "10:00"
            await docket.clear()


async def test_a_failing_task_keeps_to_its_slots(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *")) -> None:
        times.append(docket.now())
        if len(times) == 3:
            cron.cancel()
        raise ValueError("smoke")

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "11:00", "12:00"]


async def test_a_task_may_leave_its_slots_for_once(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(cron: Cron = Cron("0 * * * *")) -> None:
        times.append(docket.now())
        if len(times) == 1:
            cron.after(timedelta(minutes=10))
        if len(times) == 3:
            cron.cancel()

    docket.register(tick)
    with Clock(docket, at=datetime(2026, 1, 14, 9, 58, tzinfo=UTC)):
        await run_everything(docket)

    assert [time.isoformat()[11:16] for time in times] == ["10:00", "10:10", "11:00"]


async def test_a_cancelled_task_ends_completed(docket: Docket) -> None:
    async def tick(cron: Cron = Cron("0 * * * *", automatic=False)) -> None:
        await asyncio.sleep(0)
        cron.cancel()

    execution = await docket.add(tick, key="k")()
    async with worker_for(docket) as worker:
        await ends(worker.run_until_finished())
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED
