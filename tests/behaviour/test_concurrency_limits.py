"""What a user gets from ConcurrencyLimit."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, cast

import pytest

from docket import ConcurrencyLimit, Depends, Docket, ExecutionState, Retry, Worker
from docket.dependencies import AdmissionBlocked, Dependency, current_execution

from .limiting import (
    Diary,
    NotOnTheFirstTry,
    assert_nothing_is_left,
    at_work,
    eventually,
    finish,
    open_docket,
    parked,
    reaches,
)


@pytest.fixture
def diary() -> Diary:
    return Diary()


async def add_all(docket: Docket, function: Any, *calls: tuple[Any, ...]) -> None:
    await docket.add_many([docket.call(function)(*call) for call in calls])


# What is counted together


async def test_a_limit_on_a_parameter_holds_for_each_value(diary: Diary) -> None:
    async def sync(customer: Annotated[int, ConcurrencyLimit(2)], n: int) -> None:
        await diary.nap(n, customer)

    async with open_docket() as docket:
        await add_all(docket, sync, *((n % 3, n) for n in range(30)))
        await finish(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(diary.began) == list(range(30))
    assert diary.most_at_once == {0: 2, 1: 2, 2: 2}


async def test_a_limit_as_a_default_holds_for_the_whole_task(diary: Diary) -> None:
    async def sync(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=3)) -> None:
        assert limit.max_concurrent == 3
        await diary.nap(n, "all")

    async with open_docket() as docket:
        await add_all(docket, sync, *((n,) for n in range(20)))
        await finish(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(diary.began) == list(range(20))
    assert diary.most_at_once["all"] == 3


async def test_a_limit_may_name_an_argument(diary: Diary) -> None:
    async def sync(
        n: int, customer: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer", max_concurrent=1, scope="x")
    ) -> None:
        assert (limit.argument_name, limit.max_concurrent, limit.scope) == ("customer", 1, "x")
        await diary.nap(n, customer)

    async with open_docket() as docket:
        for n in range(6):
            await docket.add(sync)(n, customer=n % 2)
            await docket.add(sync)(10 + n, n % 2)
        await finish(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert len(diary.began) == 12
    assert diary.most_at_once == {0: 1, 1: 1}


async def test_the_default_of_a_parameter_counts_as_its_value(diary: Diary) -> None:
    async def sync(n: int, region: Annotated[str, ConcurrencyLimit(1)] = "north") -> None:
        await diary.nap(n, region)

    async def other(
        n: int, region: str = "north", limit: ConcurrencyLimit = ConcurrencyLimit("region", max_concurrent=1)
    ) -> None:
        await diary.nap(n, region)

    async with open_docket() as docket:
        await add_all(docket, sync, (0,), (1,), (2, "north"), (3, "south"))
        await add_all(docket, other, (4,), (5, "north"))
        await finish(docket)
    assert sorted(diary.began) == [0, 1, 2, 3, 4, 5]
    assert diary.most_at_once == {"north": 1, "south": 1}


async def test_tasks_that_limit_the_same_parameter_share_the_limit(diary: Diary) -> None:
    async def invoice(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await diary.nap("invoice", customer)

    async def remind(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await diary.nap("remind", customer)

    async with open_docket() as docket:
        for _ in range(4):
            await docket.add(invoice)(7)
            await docket.add(remind)(7)
        await finish(docket)
    assert len(diary.began) == 8
    assert diary.most_at_once[7] == 1


async def test_scopes_set_limits_apart(diary: Diary) -> None:
    async def invoice(customer: Annotated[int, ConcurrencyLimit(1, scope="invoices")]) -> None:
        await diary.hold("invoice")

    async def remind(customer: Annotated[int, ConcurrencyLimit(1, scope="reminders")]) -> None:
        await diary.hold("remind")

    async with open_docket() as docket, at_work(docket):
        await docket.add(invoice)(7)
        await docket.add(remind)(7)
        await diary.has("invoice", "remind")
        diary.let_go("invoice", "remind")


async def test_limits_of_whole_tasks_do_not_share(diary: Diary) -> None:
    async def invoice(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold("invoice")

    async def remind(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold("remind")

    async with open_docket() as docket, at_work(docket):
        await docket.add(invoice)()
        await docket.add(remind)()
        await diary.has("invoice", "remind")
        diary.let_go("invoice", "remind")


async def test_a_worker_can_limit_every_task(diary: Diary) -> None:
    async def one(n: int) -> None:
        await diary.nap(n, "one")

    async def two(n: int, customer: Annotated[int, ConcurrencyLimit(1)] = 0) -> None:
        await diary.nap(n, "two")

    async with open_docket() as docket:
        await add_all(docket, one, *((n,) for n in range(10)))
        await add_all(docket, two, *((n, n % 5) for n in range(10)))
        limit = ConcurrencyLimit(max_concurrent=2, scope="fleet")
        await finish(docket, dependencies={"limit": limit}, concurrency=10)
        await assert_nothing_is_left(docket)
    assert len(diary.began) == 20
    assert diary.most_at_once == {"one": 2, "two": 2}


# Waiting in line


async def test_a_blocked_task_needs_no_slot_of_the_worker(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold(n)

    async def free() -> str:
        return "ran"

    async with open_docket() as docket, at_work(docket, concurrency=2):
        await docket.add(limited)(0)
        await diary.has(0)
        await add_all(docket, limited, (1,), (2,), (3,), (4,))
        await parked(docket, 4)
        waiting = await docket.add(free)()
        assert await waiting.get_result(timeout=timedelta(seconds=10)) == "ran"
        diary.let_go(*range(5))
        await diary.has(1, 2, 3, 4)
        assert diary.began == [0, 1, 2, 3, 4]


async def test_a_blocked_task_is_queued_and_says_so_while_it_waits(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> int:
        await diary.hold(n)
        return n

    async with open_docket() as docket, at_work(docket):
        await docket.add(limited)(0)
        await diary.has(0)
        second = await docket.add(limited, key="second")(1)
        await parked(docket, 1)
        await second.sync()
        assert second.state is ExecutionState.QUEUED
        assert second.worker is None
        again = await docket.add(limited, key="second")(2)
        assert again.disposition.name == "ALREADY_SCHEDULED"
        diary.let_go(0, 1)
        assert await second.get_result(timeout=timedelta(seconds=10)) == 1


async def test_those_in_line_start_in_order_of_arrival(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        if n == 0:
            await diary.hold(n)
        else:
            diary.begin(n)

    async with open_docket() as docket, at_work(docket, concurrency=20), at_work(docket, concurrency=20):
        await docket.add(limited)(0)
        await diary.has(0)
        for n in range(1, 41):
            await docket.add(limited)(n)
            await parked(docket, n)
        diary.let_go(0)
        await diary.has(40)
    assert diary.began == list(range(41))


async def test_a_blocked_task_opens_nothing_before_its_turn(diary: Diary) -> None:
    opened: list[int] = []

    async def connection() -> int:
        opened.append(current_execution.get().args[0])
        return len(opened)

    async def limited(n: int, customer: Annotated[int, ConcurrencyLimit(1)], db: int = Depends(connection)) -> None:
        await diary.hold(n)

    async with open_docket() as docket, at_work(docket):
        await docket.add(limited)(0, 7)
        await diary.has(0)
        await docket.add(limited)(1, 7)
        await parked(docket, 1)
        assert opened == [0]
        diary.let_go(0, 1)
        await diary.has(1)
    assert opened == [0, 1]


async def test_a_task_that_was_interrupted_goes_before_those_who_wait(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold(n)

    async with open_docket() as docket:
        async with at_work(docket, grace_period=timedelta(0)):
            await docket.add(limited)(0)
            await diary.has(0)
            await add_all(docket, limited, (1,), (2,))
            await parked(docket, 2)
        # The worker had no patience: what ran was handed back, and the slot went to the first in line.
        async with at_work(docket):
            await diary.has(1)
            await parked(docket, 2)
            diary.let_go(0, 1, 2)
            await diary.has(2)
        await assert_nothing_is_left(docket)
    assert diary.began == [0, 1, 0, 2]


async def test_a_blocked_task_can_be_cancelled(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold(n)

    async with open_docket() as docket, at_work(docket):
        await docket.add(limited)(0)
        await diary.has(0)
        executions = [await docket.add(limited)(n) for n in (1, 2, 3)]
        await parked(docket, 3)
        await docket.cancel(executions[0].key)
        await docket.cancel(executions[2].key)
        await reaches(executions[0], ExecutionState.CANCELLED)
        await parked(docket, 1)
        diary.let_go(0, 1, 2, 3)
        await reaches(executions[1], ExecutionState.COMPLETED)
        await assert_nothing_is_left(docket)
    assert diary.began == [0, 2]


async def test_a_blocked_task_can_be_replaced(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> int:
        await diary.hold(n)
        return n

    async with open_docket() as docket, at_work(docket):
        await docket.add(limited)(0)
        await diary.has(0)
        first = await docket.add(limited, key="it")(1)
        await parked(docket, 1)
        await docket.replace(limited, datetime.now(UTC), "it")(2)
        await parked(docket, 1)
        diary.let_go(0, 1, 2)
        assert await first.get_result(timeout=timedelta(seconds=10)) == 2
        await assert_nothing_is_left(docket)
    assert diary.began == [0, 2]


async def test_clearing_a_docket_takes_those_in_line_too(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold(n)

    async with open_docket() as docket, at_work(docket):
        await docket.add(limited)(0)
        await diary.has(0)
        await add_all(docket, limited, *((n,) for n in range(1, 11)))
        await parked(docket, 10)
        assert await docket.clear() == 10
        await parked(docket, 0)
        diary.let_go(0)
        await eventually(lambda: diary.ended == [0], "the holder has ended")
        await docket.add(limited)(11)
        await diary.has(11)
        diary.let_go(11)
    assert diary.began == [0, 11]


# What frees a slot


@pytest.mark.parametrize("how", ["cancelled", "failed", "replaced"])
async def test_a_slot_is_free_when_its_holder_is_gone(diary: Diary, how: str) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.hold(n)
        if n == 0:
            raise RuntimeError("failed")

    async with open_docket() as docket, at_work(docket):
        holder = await docket.add(limited, key="holder")(0)
        await diary.has(0)
        await docket.add(limited)(1)
        await parked(docket, 1)
        if how == "cancelled":
            await docket.cancel(holder.key)
        elif how == "replaced":
            await docket.replace(limited, datetime.now(UTC) + timedelta(hours=1), "holder")(2)
            # Its body still goes on, and so it still counts.
            await asyncio.sleep(0.2)
            assert diary.now == {0}
        if how != "cancelled":
            diary.let_go(0)
        await diary.has(1)
        diary.let_go(1)
        await docket.cancel("holder")
        await eventually(lambda: not diary.now, "all have ended")
    assert diary.began == [0, 1]
    assert diary.most_at_once[None] == 1


async def test_a_retry_waits_its_turn_like_any_other(diary: Diary) -> None:
    async def limited(
        n: int,
        limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1),
        retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=5)),
    ) -> None:
        await diary.nap((n, retry.attempt))
        if retry.attempt < 3:
            raise RuntimeError("once more")

    async with open_docket() as docket:
        await add_all(docket, limited, *((n,) for n in range(6)))
        await finish(docket)
        await assert_nothing_is_left(docket)
    assert Counter(diary.began) == Counter((n, attempt) for n in range(6) for attempt in (1, 2, 3))
    assert diary.most_at_once[None] == 1


async def test_a_slot_is_free_when_another_dependency_fails(diary: Diary) -> None:
    async def broken() -> None:
        raise ConnectionError("no database")

    async def limited(
        n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1), db: None = Depends(broken)
    ) -> None:
        diary.begin(n)

    async with open_docket() as docket:
        executions = [await docket.add(limited)(n) for n in range(5)]
        await finish(docket)
        for execution in executions:
            await reaches(execution, ExecutionState.FAILED)
        await assert_nothing_is_left(docket)
    assert diary.began == []


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
    diary: Diary, kind: type[Dependency[None]]
) -> None:
    async def limited(
        n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1), gate: None = cast(Any, kind())
    ) -> None:
        await diary.nap(n)

    async with open_docket() as docket:
        await add_all(docket, limited, *((n,) for n in range(10)))
        await finish(docket)
        await assert_nothing_is_left(docket)
    assert sorted(diary.began) == list(range(10))
    assert diary.most_at_once[None] == 1


# Several limits


async def test_a_task_may_have_several_limits_and_none_is_exceeded(diary: Diary) -> None:
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
        await diary.nap(n)
        running.subtract(names)

    places = "abcdef"
    chosen = random.Random(1)
    async with open_docket() as docket:
        await add_all(docket, move, *((n, chosen.choice(places), chosen.choice(places)) for n in range(150)))
        await finish(docket, concurrency=30)
        await assert_nothing_is_left(docket)
    assert sorted(diary.began) == list(range(150))
    assert most["all"] == 4
    assert max(most["from", place] for place in places) == 1
    assert max(most["to", place] for place in places) <= 2


async def test_limits_in_opposite_order_do_not_lock_each_other(diary: Diary) -> None:
    async def there(a: Annotated[int, ConcurrencyLimit(1)], b: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await diary.nap(n, "all", 0.002)

    async def back(b: Annotated[int, ConcurrencyLimit(1)], a: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await diary.nap(n, "all", 0.002)

    async with open_docket() as docket:
        for n in range(0, 60, 2):
            await docket.add(there)(1, 2, n)
            await docket.add(back)(2, 1, n + 1)
        await finish(docket, concurrency=20)
        await assert_nothing_is_left(docket)
    assert sorted(diary.began) == list(range(60))
    assert diary.most_at_once["all"] == 1


async def test_a_task_that_needs_two_busy_limits_gets_its_turn(diary: Diary) -> None:
    """Others keep both limits busy without a pause; all or nothing would never find both free."""
    going_on = True

    async def on_a(a: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await diary.nap("a", "a", 0.005)

    async def on_b(b: Annotated[int, ConcurrencyLimit(1)], n: int) -> None:
        await diary.nap("b", "b", 0.005)

    async def on_both(a: Annotated[int, ConcurrencyLimit(1)], b: Annotated[int, ConcurrencyLimit(1)]) -> None:
        diary.begin("both")

    async with open_docket() as docket, at_work(docket, concurrency=20):

        async def keep_busy() -> None:
            n = 0
            while going_on:
                if (await docket.ledger.census()).parked < 10:
                    await add_all(docket, on_a, *((1, n + i) for i in range(5)))
                    await add_all(docket, on_b, *((1, n + i) for i in range(5)))
                    n += 5
                await asyncio.sleep(0.002)

        busy = asyncio.create_task(keep_busy())
        await eventually(lambda: {"a", "b"} <= set(diary.began), "both limits are busy")
        await docket.add(on_both)(1, 1)
        await diary.has("both")
        going_on = False
        await busy


# A deploy that changes a limit


def limited_to(most: int, diary: Diary) -> Any:
    async def limited(n: int, customer: Annotated[int, ConcurrencyLimit(most)] = 7) -> None:
        await diary.hold(n)

    return limited


async def test_a_limit_that_a_deploy_lowers_drains_down(diary: Diary) -> None:
    async with open_docket() as old:
        old.register(limited_to(3, diary))
        async with at_work(old) as old_worker:
            await old.add_many([old.call("limited")(n) for n in range(3)])
            await diary.has(0, 1, 2)
            old_worker.stop()  # it finishes what it runs, and takes no more
            async with Docket(name=old.name, url=old.url) as new:
                new.register(limited_to(1, diary))
                async with at_work(new):
                    await new.add_many([new.call("limited")(n) for n in range(3, 6)])
                    await parked(new, 3)
                    diary.let_go(0, 1)
                    await new.add("limited")(6)
                    await parked(new, 4)
                    assert diary.now == {2}
                    diary.let_go(2, 3, 4, 5, 6)
                    await diary.has(*range(7))
        await assert_nothing_is_left(old)
    assert diary.began[3:] == [3, 4, 5, 6]


async def test_a_limit_that_a_deploy_raises_lets_in_those_who_wait(diary: Diary) -> None:
    async with open_docket() as old:
        old.register(limited_to(1, diary))
        async with at_work(old) as old_worker:
            await old.add_many([old.call("limited")(n) for n in range(6)])
            await eventually(lambda: diary.began, "the first has begun")
            await parked(old, 5)
            old_worker.stop()  # it finishes what it runs, and takes no more
            async with Docket(name=old.name, url=old.url) as new:
                new.register(limited_to(4, diary))
                # Nobody ends and nobody is added: the start of the new worker is enough.
                async with at_work(new):
                    await eventually(lambda: len(diary.began) == 4, "four have begun")
                    await parked(new, 2)
                    assert len(diary.now) == 4
                    diary.let_go(*range(6))
                    await diary.has(*range(6))
        await assert_nothing_is_left(old)


async def test_releases_with_different_limits_can_work_side_by_side(diary: Diary) -> None:
    async with open_docket() as old, Docket(name=old.name, url=old.url) as new:
        old.register(limited_to(1, diary))
        new.register(limited_to(3, diary))
        async with at_work(old), at_work(new):
            diary.let_go(*range(60))
            await old.add_many([old.call("limited")(n) for n in range(60)])
            await diary.has(*range(60))
        await assert_nothing_is_left(old)
    assert sorted(diary.began) == list(range(60))
    assert diary.most_at_once[None] <= 3


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
        assert "sync: ConcurrencyLimit on 'limit' is for an argument 'costumer'" in caplog.text
        execution = await docket.add(sync)(1)
        await finish(docket)
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
    diary: Diary,
) -> None:
    async def sync(n: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer"), **options: int) -> None:
        await diary.nap(n)

    async with open_docket() as docket:
        good = await docket.add(sync)(1, customer=2)
        bad = await docket.add(sync)(2, costumer=2)
        await finish(docket)
        await good.get_result()
        with pytest.raises(ExceptionGroup, match="limit") as caught:
            await bad.get_result()
        assert caught.group_contains(ValueError, match="'customer'.*sync.*it has: n, costumer")
        await assert_nothing_is_left(docket)
    assert diary.began == [1]


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
        await finish(docket)
        with pytest.raises(ExceptionGroup) as caught:
            await execution.get_result()
        assert caught.group_contains(TypeError, match="'customer' of sync: a value of type Odd.*limit an id")


async def test_run_at_most_counts_runs_and_not_turns_in_line(diary: Diary) -> None:
    async def limited(n: int, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await diary.nap(n)

    async with open_docket() as docket, Worker(docket) as worker:
        for n in range(3):
            await docket.add(limited, key=str(n))(n)
        await asyncio.wait_for(worker.run_at_most({"0": 1, "1": 1, "2": 1}), 90)
    assert sorted(diary.began) == [0, 1, 2]


async def test_a_task_that_waits_says_which_of_its_limits_is_full(
    diary: Diary, caplog: pytest.LogCaptureFixture
) -> None:
    async def sync(
        customer: Annotated[int, ConcurrencyLimit(5)], limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)
    ) -> None:
        await diary.hold(customer)

    caplog.set_level("INFO", logger="docket.worker")
    async with open_docket() as docket, at_work(docket):
        await add_all(docket, sync, (1,), (2,), (3,))
        await parked(docket, 1)
        await eventually(lambda: "blocked by" in caplog.text, "the worker says so")
        diary.let_go(1, 2, 3)
        await diary.has(1, 2, 3)
    assert "blocked by a concurrency limit of 2 (task~sync" in caplog.text
