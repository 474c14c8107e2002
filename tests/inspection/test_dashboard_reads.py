"""What the pages of the dashboard read: counts, rates, workers, functions, the schedule, limits,
one task, dead letters, rules and the audit."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from itertools import pairwise
from typing import Annotated
from zoneinfo import ZoneInfo

import pytest

from docket import ConcurrencyLimit, Cron, Docket, Logged, Perpetual, Progress, Retry, Worker, __version__
from docket.errors import NotPaused, NotPermitted
from docket.inspection.audit import read_audit
from docket.inspection.census import CensusTaker, read_census
from docket.inspection.functions import read_function, read_functions
from docket.inspection.limits import read_limits
from docket.inspection.reasons import as_plain
from docket.inspection.rules import read_rules
from docket.inspection.schedule import read_upcoming
from docket.inspection.statistics import read_flow
from docket.inspection.task import MomentKind, read_task_view
from docket.inspection.workers import read_running, read_worker_views
from docket.ledger.audit import acting_as
from docket.model.places import Place
from docket.testing import Clock
from tests.running import at_work
from tests.waiting import eventually

HOUR = timedelta(hours=1)


async def note(number: Annotated[int, Logged()]) -> int:
    return number


async def stumble() -> None:
    raise LookupError("as it should")


async def flaky(retry: Retry = Retry(attempts=2)) -> str:
    if retry.attempt == 1:
        raise LookupError("once")
    return "well"


async def repeats(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None: ...


async def sometimes(perpetual: Perpetual = Perpetual(every=HOUR)) -> None: ...


async def at_three(cron: Cron = Cron("0 3 * * *", tz=ZoneInfo("Europe/Berlin"))) -> None: ...


async def test_a_census_counts_everything_in_one_request(docket: Docket) -> None:
    empty = await read_census(docket)
    assert (empty.unfinished, empty.workers, empty.oldest_ready, empty.rates) == (0, 0, None, None)
    await docket.pause("held")
    await docket.add(note, key="ready")(1)
    await docket.add(note, when=docket.now() + HOUR, key="later")(1)
    census = await read_census(docket)
    assert (census.ready, census.scheduled, census.unfinished, census.queued) == (1, 1, 2, 1)
    assert census.oldest_ready_seconds is not None
    assert census.oldest_ready_seconds < 60


async def test_rates_are_those_since_the_census_before(docket: Docket) -> None:
    docket.register(stumble)
    taker = CensusTaker(docket)
    assert (await taker.take()).rates is None
    await docket.add_many(docket.call(note)(n) for n in range(10))
    await docket.add(stumble)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    await docket.add(note)(1)
    census = await taker.take()
    rates = census.rates
    assert rates is not None
    assert round(rates.added * rates.seconds) == 12
    assert round(rates.ended * rates.seconds) == round(rates.started * rates.seconds) == 11
    assert round(rates.failed * rates.seconds) == 1
    assert [one.ready for one in taker.recent] == [0, 1]
    assert as_plain(census)["rates"]["seconds"] == rates.seconds


async def test_the_flow_has_every_minute(docket: Docket) -> None:
    await docket.add(note)(1)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    points = await read_flow(docket, length=timedelta(minutes=30))
    assert 30 <= len(points) <= 31
    assert sum(point.ended for point in points) == 1
    assert {b.since - a.since for a, b in pairwise(points)} == {timedelta(minutes=1)}
    with pytest.raises(ValueError, match="three hours"):
        await read_flow(docket, length=timedelta(hours=4))


async def test_workers_and_what_they_run(docket: Docket) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def long(progress: Progress = Progress()) -> None:
        await progress.set_total(10)
        begun.set()
        await go.wait()

    docket.register(note)
    await docket.add(long, key="long")()
    async with Worker(docket, name="here") as worker, at_work(worker):
        await begun.wait()
        [view] = await read_worker_views(docket)
        assert (view.name, set(view.functions) >= {"note", "long"}) == ("here", True)
        running = await read_running(docket)
        [run] = running.runs
        assert (run.key, run.function, run.worker, running.is_complete) == ("long", "long", "here", True)
        assert run.progress is not None
        assert run.progress.total == 10
        assert running.of(view.id) == (run,)
        assert (await read_running(docket, worker="elsewhere")).runs == ()
        go.set()


async def test_a_worker_tells_about_itself(docket: Docket) -> None:
    async with Worker(docket, name="here", concurrency=7, threads=3) as worker, at_work(worker):

        async def has_told() -> bool:
            return all(view.report for view in await read_worker_views(docket))

        await eventually(has_told, "the first renewal carries a report")
        [view] = await read_worker_views(docket)
        assert view.report is not None
        assert (view.report.slots, view.report.runs, view.report.threads, view.report.pid) == (7, 0, 3, os.getpid())
        assert view.report.version == __version__
        assert view.report.memory > 1_000_000
        assert view.report.lag >= 0
        assert (view.is_leader, view.is_deputy, view.is_stopping) == (True, False, False)
        assert view.lease_ends > view.last_seen
    assert await read_worker_views(docket) == ()
    async with docket.redis() as redis:
        assert await redis.hlen(docket.key("worker-reports")) == 0


async def test_bytes_that_are_not_a_report_count_as_none(docket: Docket) -> None:
    await docket.ledger.fleet.register("w~1", 600_000, ["note"])
    async with docket.redis() as redis:
        for data in (b"", b"x", b"\xc0", b"\x93\x01\x02\x03"):
            await redis.hset(docket.key("worker-reports"), "w~1", data)
            [view] = await read_worker_views(docket)
            assert view.report is None
        await redis.hset(docket.key("declared"), mapping={"note": b"[1]"})
        view = await read_function(docket, "note")
        assert view is not None
        assert view.declaration is None
        await redis.hset(docket.key("declared"), mapping={"note": b'{"every": 1e400, "behaviours": [3], "cron": 7}'})
        view = await read_function(docket, "note")
        assert view is not None
        assert view.declaration is not None
        assert (view.declaration.every, view.declaration.behaviours, view.declaration.cron) == (None, (), None)


async def test_reports_of_workers_that_are_gone_are_forgotten(docket: Docket) -> None:
    async with docket.redis() as redis:
        for n in range(40):
            await redis.hset(docket.key("worker-reports"), f"gone~{n}", b"x")
        await docket.ledger.fleet.register("w~1", 600_000, ["note"])
        assert await redis.hlen(docket.key("worker-reports")) == 0


async def test_functions_are_declared_with_their_behaviours(docket: Docket) -> None:
    def plain(customer: Annotated[int, Logged(), ConcurrencyLimit(2)], secret: str = "hidden") -> None:
        """Does something.

        And more."""

    for function in (plain, flaky, repeats, at_three):
        docket.register(function)
    async with Worker(docket) as worker, at_work(worker):
        found = {view.name: view for view in await read_functions(docket)}
    one = found["plain"].declaration
    assert one is not None
    assert (one.runs_in, one.summary, one.logged) == ("thread", "Does something.", ("customer",))
    assert one.parameters == ("customer: int", "secret: str")
    [limit] = one.behaviours
    assert (limit.parameter, limit.text, limit.is_limit) == ("customer", "ConcurrencyLimit(max_concurrent=2)", True)
    assert found["plain"].workers == 1
    retried = found["flaky"].declaration
    assert retried is not None
    assert [(one.text, one.is_behaviour) for one in retried.behaviours] == [("Retry(attempts=2)", True)]
    chain, daily = found["repeats"].declaration, found["at_three"].declaration
    assert chain is not None
    assert daily is not None
    assert (chain.every, chain.is_automatic, chain.runs_in) == (HOUR, True, "async")
    assert (daily.cron, daily.timezone, daily.every) == ("0 3 * * *", "Europe/Berlin", None)


async def test_a_function_that_cannot_be_described_does_not_stop_a_worker(docket: Docket) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    async def odd(n: Odd | None = None) -> None: ...

    odd.__doc__ = "x" * 100_000
    docket.register(odd)
    async with Worker(docket) as worker, at_work(worker):
        view = await read_function(docket, "odd")
    assert view is not None
    assert view.declaration is not None
    assert len(view.declaration.summary or "") == 200


async def test_how_many_tasks_a_function_has_is_estimated_if_there_are_many(docket: Docket) -> None:
    await docket.add_many(docket.call(note)(n) for n in range(1_500))
    await docket.add_many(docket.call(stumble, when=docket.now() + HOUR)() for _ in range(1_500))
    found = {view.name: view.tasks for view in await read_functions(docket)}
    assert not found["note"].is_exact
    assert abs(found["note"].queued - 1_500) < 500
    assert found["stumble"].queued == 0
    await docket.clear(function=note)
    found = {view.name: view.tasks for view in await read_functions(docket)}
    assert (found["stumble"].scheduled, found["stumble"].is_exact) == (1_500, True)


async def test_the_flow_counts_what_was_added_between_two_samples(docket: Docket, clock: Clock) -> None:
    await docket.add_many(docket.call(note)(n) for n in range(5))
    await docket.ledger.statistics.fold_minute()
    await docket.add_many(docket.call(note)(n) for n in range(20))
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    await clock.advance(timedelta(minutes=1))
    await docket.add_many(docket.call(note)(n) for n in range(3))
    await docket.ledger.statistics.fold_minute()
    await docket.ledger.statistics.fold_minute()
    before, last = (await read_flow(docket))[-2:]
    assert (before.ready, before.ended, before.added) == (5, 25, None)
    assert (last.ready, last.running, last.ended) == (3, 0, 0)
    assert last.added == pytest.approx(23, rel=0.1)


async def test_functions_with_their_statistics(docket: Docket) -> None:
    for function in (note, stumble):
        docket.register(function)
    await docket.add_many(docket.call(note)(n) for n in range(3))
    await docket.add(stumble)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    found = {view.name: view for view in await read_functions(docket)}
    assert found["note"].stats.succeeded == sum(found["note"].ended) == 3
    assert len(found["note"].ended) == 60
    assert found["stumble"].failure_share == 1
    assert sum(found["stumble"].failed) == 1
    one = await read_function(docket, "stumble")
    assert one is not None
    assert one.stats == found["stumble"].stats
    assert await read_function(docket, "nobody") is None


async def test_the_schedule_by_time_and_function(docket: Docket, clock: Clock) -> None:
    now = docket.now()
    docket.register(repeats)
    calls = [docket.call(note, when=now + HOUR * 2 + timedelta(seconds=i))(i) for i in range(100)]
    # One function after the other: among tasks of one
    # time, the random keys decide about the sample.
    calls += [docket.call(stumble, when=now + HOUR * 2 + timedelta(seconds=100 + i))() for i in range(300)]
    calls += [docket.call(note, when=now + timedelta(days=3))(1)]
    await docket.add_many(calls)
    upcoming = await read_upcoming(docket, bucket=HOUR)
    full = [bucket for bucket in upcoming.buckets if bucket.count]
    assert sum(bucket.count for bucket in full) == 400
    assert upcoming.later == 1
    assert not all(bucket.is_exact for bucket in full)
    by_function = {name: sum(b.functions.get(name, 0) for b in full) for name in ("note", "stumble")}
    assert abs(by_function["note"] - 100) < 30
    assert abs(by_function["stumble"] - 300) < 30
    with pytest.raises(ValueError, match="buckets"):
        await read_upcoming(docket, bucket=timedelta(0))


async def test_the_schedule_has_the_automatic_tasks(docket: Docket) -> None:
    docket.register(repeats)
    async with Worker(docket) as worker, at_work(worker):

        async def chain_waits() -> bool:
            return any(chain.next_run for chain in (await read_upcoming(docket)).chains)

        await eventually(chain_waits, "the next run is scheduled")
        [chain] = (await read_upcoming(docket)).chains
        assert (chain.key, chain.is_running, chain.cancelled_at) == ("repeats", False, None)
        await docket.cancel("repeats")
        [chain] = (await read_upcoming(docket)).chains
        assert chain.next_run is None
        assert chain.cancelled_at is not None


async def test_the_schedule_has_chains_that_a_program_has_added(docket: Docket) -> None:
    docket.register(repeats)
    docket.register(sometimes)
    await docket.add(sometimes, when=docket.now() + HOUR * 3, key="customer-7")()
    await docket.add(note, when=docket.now() + HOUR, key="no-chain")(1)
    async with Worker(docket) as worker, at_work(worker):

        async def chain_waits() -> bool:
            chains = (await read_upcoming(docket)).chains
            return any(chain.next_run for chain in chains if chain.is_automatic)

        await eventually(chain_waits, "the next run is scheduled")
        upcoming = await read_upcoming(docket)
        assert upcoming.is_complete
        assert [(chain.key, chain.function, chain.is_automatic) for chain in upcoming.chains] == [
            ("repeats", "repeats", True),
            ("customer-7", "sometimes", False),
        ]
        chain = upcoming.chains[1]
        assert chain.every == HOUR
        assert chain.next_run is not None
        assert chain.skip_to == chain.next_run + HOUR


async def test_limits_their_holders_and_their_waiters(docket: Docket) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def one(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        begun.set()
        await go.wait()

    await docket.add(one, key="first")(7)
    async with Worker(docket, name="here") as worker, at_work(worker):
        await begun.wait()
        await docket.add(one, key="second")(7)

        async def waits() -> bool:
            return bool((await read_census(docket)).parked)

        await eventually(waits, "the second task is parked")
        page = await read_limits(docket)
        [limit] = page.limits
        assert (page.total, page.cursor) == (1, None)
        assert (limit.parameter, limit.most, limit.in_use, limit.waiting) == ("customer", 1, 1, 1)
        assert [(holder.key, holder.worker) for holder in limit.holders] == [("first", "here")]
        assert [(waiter.key, waiter.function) for waiter in limit.waiters] == [("second", "one")]
        now = docket.now()
        assert limit.waiting_since is not None
        assert now - HOUR < limit.waiting_since <= now + timedelta(seconds=1)
        go.set()
    with pytest.raises(ValueError, match="cursor"):
        await read_limits(docket, cursor="x")


async def test_one_task_with_its_time_line_and_its_result(docket: Docket) -> None:
    assert await read_task_view(docket, "nobody") is None
    await docket.add(note, key="note")(7)
    waiting = await read_task_view(docket, "note")
    assert waiting is not None
    assert waiting.place is Place.READY
    assert waiting.timeline[-1].kind is MomentKind.WAITS
    assert waiting.details.arguments == {"number": "7"}
    await docket.add(flaky, key="flaky")()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    done = await read_task_view(docket, "note")
    assert done is not None
    assert [moment.kind for moment in done.timeline][-2:] == [MomentKind.CLAIMED, MomentKind.ENDED]
    assert done.result is not None
    assert (done.result.type, done.result.codec, done.result.has_value) == ("int", "pickle", False)
    retried = await read_task_view(docket, "flaky")
    assert retried is not None
    [failed] = [moment for moment in retried.timeline if moment.kind is MomentKind.FAILED_ATTEMPT]
    assert "once" in (failed.error or "")
    assert retried.as_json()["details"]["key"] == "flaky"


async def test_dead_letters_page_by_page(docket: Docket) -> None:
    docket.register(stumble)
    for n in range(25):
        await docket.add(stumble, key=f"dead-{n:02}")()
    async with Worker(docket) as worker:
        await worker.run_until_finished()

    async def pages(**filter: str) -> list[int]:
        found, cursor = list[int](), None
        while True:
            page = await docket.dead.page(cursor=cursor, size=10, **filter)  # type: ignore[arg-type]
            assert len(page.letters) <= 10
            found += [letter.id for letter in page.letters]
            cursor = page.cursor
            if cursor is None:
                return found

    newest_first = [letter.id async for letter in docket.dead.find()]
    assert await pages() == await pages(function="stumble") == await pages(text="as it") == newest_first
    assert await pages(key="dead-03") == [letter.id async for letter in docket.dead.find(key="dead-03")]
    assert await pages(text="nothing of that") == []
    with pytest.raises(ValueError, match="not a cursor"):
        await docket.dead.page(cursor="x")


async def test_rules(docket: Docket) -> None:
    await docket.strike("note", "number", ">", 5)
    await docket.pause("stumble")
    rules = await read_rules(docket)
    [strike] = rules.strikes
    assert (strike.function, strike.parameter, strike.operator, strike.value) == ("note", "number", ">", 5)
    assert [pause.id for pause in rules.pauses] == ["=stumble"]


async def test_changes_are_written_down_with_who_and_what(docket: Docket) -> None:
    with acting_as("alice", "web"):
        async with docket.ledger.audit.change("test.one", "key x") as entry:
            entry.count = 3
            async with docket.ledger.audit.change("inside"):
                pass
        with pytest.raises(LookupError):
            async with docket.ledger.audit.change("test.two"):
                raise LookupError("nothing there")
    async with docket.ledger.audit.change("test.three"):
        pass
    page = await read_audit(docket)
    assert [entry.action for entry in page.entries] == ["test.three", "test.two", "test.one"]
    three, two, one = page.entries
    assert (one.who, one.via, one.about, one.count, one.outcome) == ("alice", "web", "key x", 3, "done")
    assert two.outcome == "LookupError: nothing there"
    assert three.via == "python"
    assert "@" in three.who
    assert abs(one.at - docket.now()) < HOUR
    assert [entry.id for entry in (await read_audit(docket, who="alice", size=1)).entries] == [two.id]
    first = await read_audit(docket, size=2)
    rest = await read_audit(docket, size=2, cursor=first.cursor)
    assert [*first.entries, *rest.entries] == [three, two, one]
    assert (rest.cursor, rest.total) == (None, 3)
    with pytest.raises(ValueError, match="not a cursor"):
        await read_audit(docket, cursor="x")


async def test_changes_of_operators_are_written_down(docket: Docket) -> None:
    docket.register(stumble)
    await docket.add(stumble, key="dead")()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    await docket.pause("note")
    await docket.resume("note")
    await docket.strike("note", "number", ">", 5)
    await docket.restore("note", "number", ">", 5)
    await docket.clear(function="note")
    await docket.dead.retry(function="stumble")
    await docket.cancel("dead")
    with acting_as("alice", "web"):
        await docket.cancel("dead")
    with pytest.raises(NotPaused):
        await docket.resume("note")
    found = [(entry.action, entry.about, entry.count, entry.outcome[:9]) for entry in (await docket.audit()).entries]
    assert found[::-1] == [
        ("pause", "note(...)", None, "done"),
        ("resume", "note(...)", 0, "done"),
        ("strike", "note(number > 5)", None, "done"),
        ("restore", "note(number > 5)", None, "done"),
        ("clear", "function=note", 0, "done"),
        ("dead.retry", "function=stumble", 1, "done"),
        ("cancel", "dead", 0, "not found"),
        ("resume", "note(...)", None, "NotPaused"),
    ]


async def test_an_audit_that_cannot_be_written_stops_nothing(
    docket: Docket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise NotPermitted("xadd is not permitted")

    monkeypatch.setattr(docket.ledger.audit, "write", refuse)
    await docket.pause("note")
    assert len(await docket.pauses()) == 1
    assert "not written down" in caplog.text
