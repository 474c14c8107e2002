"""What a user gets from ConcurrencyLimit."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import pytest

from docket import ConcurrencyLimit, Depends, Docket, ExecutionState, Retry, Worker
from docket.dependencies import AdmissionBlocked, Dependency, current_execution
from tests.limits.helpers import NotOnTheFirstTry, assert_nothing_is_left, open_docket, parked
from tests.run_log import RunLog
from tests.running import run_with_defaults, worker_at_work
from tests.waiting import WAIT_LIMIT, ends, eventually, reaches


@pytest.fixture
def run_log() -> RunLog:
    return RunLog()


async def add_all(docket: Docket, function: Any, *calls: tuple[Any, ...]) -> None:
    await docket.add_many([docket.call(function)(*call) for call in calls])


# What is counted together


async def test_a_limit_on_a_parameter_holds_for_each_value(run_log: RunLog) -> None:
    async def sync(customer: Annotated[int, ConcurrencyLimit(2)], n: int) -> None:
        await run_log.nap(n, customer)

    async with open_docket() as docket:
        await add_all(docket, sync, *((n % 3, n) for n in range(30)))
        await run_with_defaults(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(30))
    assert run_log.most_at_once == {0: 2, 1: 2, 2: 2}


async def test_a_limit_as_a_default_holds_for_the_whole_task(run_log: RunLog) -> None:
    async def sync(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=3)) -> None:
        assert limit.max_concurrent == 3
        await run_log.nap(n, "all")

    async with open_docket() as docket:
        await add_all(docket, sync, *((n,) for n in range(20)))
        await run_with_defaults(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(20))
    assert run_log.most_at_once["all"] == 3


async def test_a_limit_may_name_an_argument(run_log: RunLog) -> None:
    async def sync(
        n: int, customer: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer", max_concurrent=1, scope="x")
    ) -> None:
        assert (limit.argument_name, limit.max_concurrent, limit.scope) == ("customer", 1, "x")
        await run_log.nap(n, customer)

    async with open_docket() as docket:
        for n in range(6):
            await docket.add(sync)(n, customer=n % 2)
            await docket.add(sync)(10 + n, n % 2)
        await run_with_defaults(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert len(run_log.began) == 12
    assert run_log.most_at_once == {0: 1, 1: 1}


async def test_the_default_of_a_parameter_counts_as_its_value(run_log: RunLog) -> None:
    async def sync(n: int, region: Annotated[str, ConcurrencyLimit(1)] = "north") -> None:
        await run_log.nap(n, region)

    async def other(
        n: int, region: str = "north", limit: ConcurrencyLimit = ConcurrencyLimit("region", max_concurrent=1)
    ) -> None:
        await run_log.nap(n, region)

    async with open_docket() as docket:
        await add_all(docket, sync, (0,), (1,), (2, "north"), (3, "south"))
        await add_all(docket, other, (4,), (5, "north"))
        await run_with_defaults(docket)
    assert sorted(run_log.began) == [0, 1, 2, 3, 4, 5]
    assert run_log.most_at_once == {"north": 1, "south": 1}


async def test_tasks_that_limit_the_same_parameter_share_the_limit(run_log: RunLog) -> None:
    async def invoice(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await run_log.nap("invoice", customer)

    async def remind(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await run_log.nap("remind", customer)

    async with open_docket() as docket:
        for _ in range(4):
            await docket.add(invoice)(7)
            await docket.add(remind)(7)
        await run_with_defaults(docket)
    assert len(run_log.began) == 8
    assert run_log.most_at_once[7] == 1


async def test_scopes_set_limits_apart(run_log: RunLog) -> None:
    async def invoice(customer: Annotated[int, ConcurrencyLimit(1, scope="invoices")]) -> None:
        await run_log.hold("invoice")

    async def remind(customer: Annotated[int, ConcurrencyLimit(1, scope="reminders")]) -> None:
        await run_log.hold("remind")

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(invoice)(7)
        await docket.add(remind)(7)
        await run_log.has("invoice", "remind")
        run_log.let_go("invoice", "remind")


async def test_limits_of_whole_tasks_do_not_share(run_log: RunLog) -> None:
    async def invoice(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold("invoice")

    async def remind(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold("remind")

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(invoice)()
        await docket.add(remind)()
        await run_log.has("invoice", "remind")
        run_log.let_go("invoice", "remind")


async def test_a_worker_can_limit_every_task(run_log: RunLog) -> None:
    async def one(n: int) -> None:
        await run_log.nap(n, "one")

    async def two(n: int, customer: Annotated[int, ConcurrencyLimit(1)] = 0) -> None:
        await run_log.nap(n, "two")

    async with open_docket() as docket:
        await add_all(docket, one, *((n,) for n in range(10)))
        await add_all(docket, two, *((n, n % 5) for n in range(10)))
        limit = ConcurrencyLimit(max_concurrent=2, scope="fleet")
        await run_with_defaults(docket, dependencies={"limit": limit}, concurrency=10)
        await assert_nothing_is_left(docket)
    assert len(run_log.began) == 20
    assert run_log.most_at_once == {"one": 2, "two": 2}


# Waiting in line


async def test_a_blocked_task_needs_no_slot_of_the_worker(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold(n)

    async def free() -> str:
        return "ran"

    async with open_docket() as docket, worker_at_work(docket, concurrency=2):
        await docket.add(limited)(0)
        await run_log.has(0)
        await add_all(docket, limited, (1,), (2,), (3,), (4,))
        await parked(docket, 4)
        waiting = await docket.add(free)()
        assert await waiting.get_result(timeout=WAIT_LIMIT) == "ran"
        run_log.let_go(*range(5))
        await run_log.has(1, 2, 3, 4)
        assert run_log.began == [0, 1, 2, 3, 4]


async def test_a_blocked_task_is_queued_and_says_so_while_it_waits(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> int:
        await run_log.hold(n)
        return n

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(limited)(0)
        await run_log.has(0)
        second = await docket.add(limited, key="second")(1)
        await parked(docket, 1)
        await second.sync()
        assert second.state is ExecutionState.QUEUED
        assert second.worker is None
        again = await docket.add(limited, key="second")(2)
        assert again.disposition.name == "ALREADY_SCHEDULED"
        run_log.let_go(0, 1)
        assert await second.get_result(timeout=WAIT_LIMIT) == 1


async def test_those_in_line_start_in_order_of_arrival(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        if n == 0:
            await run_log.hold(n)
        else:
            run_log.begin(n)

    async with (
        open_docket() as docket,
        worker_at_work(docket, concurrency=20),
        worker_at_work(docket, concurrency=20),
    ):
        await docket.add(limited)(0)
        await run_log.has(0)
        for n in range(1, 41):
            await docket.add(limited)(n)
            await parked(docket, n)
        run_log.let_go(0)
        await run_log.has(40)
    assert run_log.began == list(range(41))


async def test_a_blocked_task_opens_nothing_before_its_turn(run_log: RunLog) -> None:
    opened: list[int] = []

    async def connection() -> int:
        opened.append(current_execution.get().args[0])
        return len(opened)

    async def limited(n: int, customer: Annotated[int, ConcurrencyLimit(1)], db: int = Depends(connection)) -> None:
        await run_log.hold(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(limited)(0, 7)
        await run_log.has(0)
        await docket.add(limited)(1, 7)
        await parked(docket, 1)
        assert opened == [0]
        run_log.let_go(0, 1)
        await run_log.has(1)
    assert opened == [0, 1]


async def test_a_task_that_was_interrupted_goes_before_those_who_wait(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold(n)

    async with open_docket() as docket:
        async with worker_at_work(docket, grace_period=timedelta(0)):
            await docket.add(limited)(0)
            await run_log.has(0)
            await add_all(docket, limited, (1,), (2,))
            await parked(docket, 2)
        # The worker had no patience: what ran was requeued,
        # and the slot went to the first waiter.
        async with worker_at_work(docket):
            await run_log.has(1)
            await parked(docket, 2)
            run_log.let_go(0, 1, 2)
            await run_log.has(2)
        await assert_nothing_is_left(docket)
    assert run_log.began == [0, 1, 0, 2]


async def test_a_blocked_task_can_be_cancelled(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(limited)(0)
        await run_log.has(0)
        executions = [await docket.add(limited)(n) for n in (1, 2, 3)]
        await parked(docket, 3)
        await docket.cancel(executions[0].key)
        await docket.cancel(executions[2].key)
        await reaches(executions[0], ExecutionState.CANCELLED)
        await parked(docket, 1)
        run_log.let_go(0, 1, 2, 3)
        await reaches(executions[1], ExecutionState.COMPLETED)
        await assert_nothing_is_left(docket)
    assert run_log.began == [0, 2]


async def test_a_blocked_task_can_be_replaced(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> int:
        await run_log.hold(n)
        return n

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(limited)(0)
        await run_log.has(0)
        first = await docket.add(limited, key="it")(1)
        await parked(docket, 1)
        await docket.replace(limited, datetime.now(UTC), "it")(2)
        await parked(docket, 1)
        run_log.let_go(0, 1, 2)
        assert await first.get_result(timeout=WAIT_LIMIT) == 2
        await assert_nothing_is_left(docket)
    assert run_log.began == [0, 2]


async def test_clearing_a_docket_takes_those_in_line_too(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold(n)

    async with open_docket() as docket, worker_at_work(docket):
        await docket.add(limited)(0)
        await run_log.has(0)
        await add_all(docket, limited, *((n,) for n in range(1, 11)))
        await parked(docket, 10)
        assert await docket.clear() == 10
        await parked(docket, 0)
        run_log.let_go(0)
        await eventually(lambda: run_log.ended == [0], "the holder has ended")
        await docket.add(limited)(11)
        await run_log.has(11)
        run_log.let_go(11)
    assert run_log.began == [0, 11]


# What frees a slot


@pytest.mark.parametrize("how", ["cancelled", "failed", "replaced"])
async def test_a_slot_is_free_when_its_holder_is_gone(run_log: RunLog, how: str) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.hold(n)
        if n == 0:
            raise RuntimeError("failed")

    async with open_docket() as docket, worker_at_work(docket):
        holder = await docket.add(limited, key="holder")(0)
        await run_log.has(0)
        await docket.add(limited)(1)
        await parked(docket, 1)
        if how == "cancelled":
            await docket.cancel(holder.key)
        elif how == "replaced":
            await docket.replace(limited, datetime.now(UTC) + timedelta(hours=1), "holder")(2)
            # Its body still goes on, and so it still counts.
            await asyncio.sleep(0.2)
            assert run_log.now == {0}
        if how != "cancelled":
            run_log.let_go(0)
        await run_log.has(1)
        run_log.let_go(1)
        await docket.cancel("holder")
        await eventually(lambda: not run_log.now, "all have ended")
    assert run_log.began == [0, 1]
    assert run_log.most_at_once[None] == 1


async def test_a_retry_waits_its_turn_like_any_other(run_log: RunLog) -> None:
    async def limited(
        n: int,
        limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
        retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=5)),
    ) -> None:
        await run_log.nap((n, retry.attempt))
        if retry.attempt < 3:
            raise RuntimeError("once more")

    async with open_docket() as docket:
        await add_all(docket, limited, *((n,) for n in range(6)))
        await run_with_defaults(docket)
        await assert_nothing_is_left(docket)
    assert Counter(run_log.began) == Counter((n, attempt) for n in range(6) for attempt in (1, 2, 3))
    assert run_log.most_at_once[None] == 1


async def test_a_slot_is_free_when_another_dependency_fails(run_log: RunLog) -> None:
    async def broken() -> None:
        raise ConnectionError("no database")

    async def limited(
        n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1), db: None = Depends(broken)
    ) -> None:
        run_log.begin(n)

    async with open_docket() as docket:
        executions = [await docket.add(limited)(n) for n in range(5)]
        await run_with_defaults(docket)
        for execution in executions:
            await reaches(execution, ExecutionState.FAILED)
        await assert_nothing_is_left(docket)
    assert run_log.began == []


class ReplacedByItself(Dependency[None]):
    """Replaces every task by one that is due now, once, and says that it has dealt with it."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def __aenter__(self) -> None:
        execution = current_execution.get()
        if execution.key not in self.seen:
            self.seen.add(execution.key)
            docket: Any = execution.docket
            await docket.replace(execution.function, datetime.now(UTC), execution.key)(*execution.args)
            raise AdmissionBlocked(execution, "a test", handled=True)


@pytest.mark.parametrize("kind", [NotOnTheFirstTry, ReplacedByItself])
async def test_a_slot_is_free_when_another_dependency_puts_the_task_off_or_replaces_it(
    run_log: RunLog, kind: type[Dependency[None]]
) -> None:
    async def limited(
        n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1), gate: None = cast(Any, kind())
    ) -> None:
        await run_log.nap(n)

    async with open_docket() as docket:
        await add_all(docket, limited, *((n,) for n in range(10)))
        await run_with_defaults(docket)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(10))
    assert run_log.most_at_once[None] == 1


# Several limits


async def test_a_task_may_have_several_limits_and_none_is_exceeded(run_log: RunLog) -> None:
    running: Counter[Any] = Counter()
    most: Counter[Any] = Counter()

    async def move(
        n: int,
        source: Annotated[str, ConcurrencyLimit(1)],
        target: Annotated[str, ConcurrencyLimit(2)],
        limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=4),
    ) -> None:
        names = ("all", ("from", source), ("to", target))
        running.update(names)
        for name in names:
            most[name] = max(most[name], running[name])
        await run_log.nap(n)
        running.subtract(names)

    places = "abcdef"
    chosen = random.Random(1)
    async with open_docket() as docket:
        await add_all(docket, move, *((n, chosen.choice(places), chosen.choice(places)) for n in range(150)))
        await run_with_defaults(docket, concurrency=30)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(150))
    assert most["all"] == 4
    assert max(most["from", place] for place in places) == 1
    assert max(most["to", place] for place in places) <= 2


async def test_limits_in_opposite_order_do_not_lock_each_other(run_log: RunLog) -> None:
    async def there(a: Annotated[int, ConcurrencyLimit(1)], b: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await run_log.nap(n, "all", 0.002)

    async def back(b: Annotated[int, ConcurrencyLimit(1)], a: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await run_log.nap(n, "all", 0.002)

    async with open_docket() as docket:
        for n in range(0, 60, 2):
            await docket.add(there)(1, 2, n)
            await docket.add(back)(2, 1, n + 1)
        await run_with_defaults(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(run_log.began) == list(range(60))
    assert run_log.most_at_once["all"] == 1


async def test_a_task_that_needs_two_busy_limits_gets_its_turn(run_log: RunLog) -> None:
    """Others keep both limits busy without a pause; all or nothing would never find both free."""
    going_on = True

    async def on_a(a: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await run_log.nap("a", "a", 0.005)

    async def on_b(b: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await run_log.nap("b", "b", 0.005)

    async def on_both(a: Annotated[int, ConcurrencyLimit(1)], b: Annotated[int, ConcurrencyLimit(1)]) -> None:
        run_log.begin("both")

    async with open_docket() as docket, worker_at_work(docket, concurrency=20):

        async def keep_busy() -> None:
            n = 0
            while going_on:
                if (await docket.ledger.queries.census()).parked < 10:
                    await add_all(docket, on_a, *((1, n + i) for i in range(5)))
                    await add_all(docket, on_b, *((1, n + i) for i in range(5)))
                    n += 5
                await asyncio.sleep(0.002)

        busy = asyncio.create_task(keep_busy())
        await eventually(lambda: {"a", "b"} <= set(run_log.began), "both limits are busy")
        await docket.add(on_both)(1, 1)
        await run_log.has("both")
        going_on = False
        await busy


# A deploy that changes a limit


def limited_to(most: int, run_log: RunLog) -> Any:
    async def limited(n: int, customer: Annotated[int, ConcurrencyLimit(most)] = 7) -> None:
        await run_log.hold(n)

    return limited


async def test_a_limit_that_a_deploy_lowers_drains_down(run_log: RunLog) -> None:
    async with open_docket() as old:
        old.register(limited_to(3, run_log))
        async with worker_at_work(old) as old_worker:
            await old.add_many([old.call("limited")(n) for n in range(3)])
            await run_log.has(0, 1, 2)
            old_worker.stop()  # it finishes what it runs, and takes no more
            async with Docket(name=old.name, url=old.url) as new:
                new.register(limited_to(1, run_log))
                async with worker_at_work(new):
                    await new.add_many([new.call("limited")(n) for n in range(3, 6)])
                    await parked(new, 3)
                    run_log.let_go(0, 1)
                    await new.add("limited")(6)
                    await parked(new, 4)
                    assert run_log.now == {2}
                    run_log.let_go(2, 3, 4, 5, 6)
                    await run_log.has(*range(7))
        await assert_nothing_is_left(old)
    assert run_log.began[3:] == [3, 4, 5, 6]


async def test_a_limit_that_a_deploy_raises_lets_in_those_who_wait(run_log: RunLog) -> None:
    async with open_docket() as old:
        old.register(limited_to(1, run_log))
        async with worker_at_work(old) as old_worker:
            await old.add_many([old.call("limited")(n) for n in range(6)])
            await eventually(lambda: run_log.began, "the first has begun")
            await parked(old, 5)
            old_worker.stop()  # it finishes what it runs, and takes no more
            async with Docket(name=old.name, url=old.url) as new:
                new.register(limited_to(4, run_log))
                # Nobody ends and nobody is added: the start of the new worker is enough.
                async with worker_at_work(new):
                    await eventually(lambda: len(run_log.began) == 4, "four have begun")
                    await parked(new, 2)
                    assert len(run_log.now) == 4
                    run_log.let_go(*range(6))
                    await run_log.has(*range(6))
        await assert_nothing_is_left(old)


async def test_releases_with_different_limits_can_work_side_by_side(run_log: RunLog) -> None:
    async with open_docket() as old, Docket(name=old.name, url=old.url) as new:
        old.register(limited_to(1, run_log))
        new.register(limited_to(3, run_log))
        async with worker_at_work(old), worker_at_work(new):
            run_log.let_go(*range(60))
            await old.add_many([old.call("limited")(n) for n in range(60)])
            await run_log.has(*range(60))
        await assert_nothing_is_left(old)
    assert sorted(run_log.began) == list(range(60))
    assert run_log.most_at_once[None] <= 3


# Bad input


@pytest.mark.parametrize("bad", [0, -1])
def test_a_limit_below_one_is_refused(bad: int) -> None:
    for make in (
        lambda: ConcurrencyLimit(bad),
        lambda: ConcurrencyLimit(max_concurrent=bad),
        lambda: ConcurrencyLimit("customer", max_concurrent=bad),
    ):
        with pytest.raises(ValueError, match=f"max_concurrent={bad}.*at least 1"):
            make()


@pytest.mark.parametrize("bad", [1.5, True, None, "3"])
def test_a_limit_that_is_no_whole_number_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        ConcurrencyLimit("customer", max_concurrent=bad)


async def test_a_limit_on_an_unknown_argument_is_told_at_registration_and_fails_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def sync(customer: int, limit: ConcurrencyLimit = ConcurrencyLimit("costumer")) -> None: ...

    async with open_docket() as docket:
        docket.register(sync)
        assert "sync: ConcurrencyLimit on 'limit' limits an argument 'costumer'" in caplog.text
        execution = await docket.add(sync)(1)
        await run_with_defaults(docket)
        with pytest.raises(ExceptionGroup) as failure:
            await execution.get_result()
        assert "customer" in str(failure.value.exceptions[0])


async def test_a_limit_on_what_a_dependency_fills_is_refused_at_registration() -> None:
    def number() -> int:
        return 1

    async def sync(customer: Annotated[int, ConcurrencyLimit(1)] = Depends(number)) -> None: ...

    async def named(
        customer: int = Depends(number), limit: ConcurrencyLimit = ConcurrencyLimit("customer")
    ) -> None: ...

    async with open_docket() as docket:
        for function in (sync, named):
            with pytest.raises(ValueError, match=f"{function.__name__}.*'customer'.*a dependency fills"):
                docket.register(function)


async def test_a_limit_on_an_argument_that_was_not_passed_fails_the_task_and_names_those_that_were(
    run_log: RunLog,
) -> None:
    async def sync(n: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer"), **options: int) -> None:
        await run_log.nap(n)

    async with open_docket() as docket:
        good = await docket.add(sync)(1, customer=2)
        bad = await docket.add(sync)(2, costumer=2)
        await run_with_defaults(docket)
        await good.get_result()
        with pytest.raises(ExceptionGroup, match="limit") as caught:
            await bad.get_result()
        assert caught.group_contains(ValueError, match="'customer'.*sync.*it has: n, costumer")
        await assert_nothing_is_left(docket)
    assert run_log.began == [1]


async def test_a_value_that_cannot_be_told_apart_fails_the_task_and_says_so() -> None:
    class Opaque:
        def __reduce_ex__(self, protocol: Any) -> Any:
            return rebuild, (lambda: None,)

    class Odd:
        def __reduce_ex__(self, protocol: Any) -> Any:
            raise TypeError("no state")

    def rebuild(_: Any) -> Any:
        return Odd()

    async def sync(customer: Annotated[Any, ConcurrencyLimit(1)]) -> None: ...

    async with open_docket() as docket:
        execution = await docket.add(sync)(Opaque())
        await run_with_defaults(docket)
        with pytest.raises(ExceptionGroup) as caught:
            await execution.get_result()
        assert caught.group_contains(TypeError, match="'customer' of sync: a value of type Odd.*limit an id")


async def test_run_at_most_counts_runs_and_not_turns_in_line(run_log: RunLog) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await run_log.nap(n)

    async with open_docket() as docket, Worker(docket) as worker:
        for n in range(3):
            await docket.add(limited, key=str(n))(n)
        await ends(worker.run_at_most({"0": 1, "1": 1, "2": 1}))
    assert sorted(run_log.began) == [0, 1, 2]


async def test_a_task_that_waits_says_which_of_its_limits_is_full(
    run_log: RunLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def sync(
        customer: Annotated[int, ConcurrencyLimit(5)], limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)
    ) -> None:
        await run_log.hold(customer)

    caplog.set_level("INFO", logger="docket.worker")
    async with open_docket() as docket, worker_at_work(docket):
        await add_all(docket, sync, (1,), (2,), (3,))
        await parked(docket, 1)
        await eventually(lambda: "blocked by" in caplog.text, "the worker says so")
        run_log.let_go(1, 2, 3)
        await run_log.has(1, 2, 3)
    assert "blocked by a concurrency limit of 2 (task~sync" in caplog.text
