"""How many of a kind run at once."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest

from docket import ConcurrencyLimit, Disposition, Docket, ExecutionState, Perpetual, Retry, Timeout, Worker
from tests.running import run_everything, running, worker_for
from tests.times import now
from tests.waiting import ends, eventually, reaches, within


class Occupancy:
    """Counts who is inside at once, in all and by name."""

    def __init__(self) -> None:
        self.inside: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.most_in_all = 0
        self.visits: list[str] = []

    async def visit(self, name: object, stay: float = 0.03) -> None:
        who = str(name)
        self.visits.append(who)
        self.inside[who] = self.inside.get(who, 0) + 1
        self.most[who] = max(self.most.get(who, 0), self.inside[who])
        self.most_in_all = max(self.most_in_all, sum(self.inside.values()))
        try:
            await asyncio.sleep(stay)
        finally:
            self.inside[who] -= 1


@pytest.fixture
def occupancy() -> Occupancy:
    return Occupancy()


async def test_a_limit_on_a_parameter_counts_each_value_for_itself(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(1)], number: int) -> None:
        await occupancy.visit(customer, 0.1)

    for number in range(3):
        for customer in "ab":
            await docket.add(serve)(customer, number)
    await run_everything(docket)

    assert occupancy.most == {"a": 1, "b": 1}
    assert occupancy.most_in_all == 2
    assert sorted(occupancy.visits) == ["a"] * 3 + ["b"] * 3


async def test_a_limit_on_a_parameter_may_be_more_than_one(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(2)], number: int) -> None:
        await occupancy.visit(customer, 0.08)

    for number in range(6):
        await docket.add(serve)("a", number)
    await run_everything(docket)

    assert occupancy.most == {"a": 2}
    assert len(occupancy.visits) == 6


async def test_a_limit_on_a_parameter_counts_an_argument_given_by_keyword(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(1)]) -> None:
        await occupancy.visit(customer)

    await docket.add(serve)(customer="a")
    await docket.add(serve)("a")
    await run_everything(docket)

    assert occupancy.most == {"a": 1}
    assert len(occupancy.visits) == 2


async def test_a_limit_as_a_default_is_for_the_whole_task(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: str, limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=2)) -> None:
        await occupancy.visit(customer, 0.08)

    for customer in "abcdef":
        await docket.add(serve)(customer)
    await run_everything(docket)

    assert occupancy.most_in_all == 2
    assert sorted(occupancy.visits) == list("abcdef")


async def test_the_old_form_names_the_argument(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(
        customer: str, number: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer", max_concurrent=1)
    ) -> None:
        await occupancy.visit(customer, 0.08)

    for number in range(2):
        for customer in "ab":
            await docket.add(serve)(customer, number)
    await run_everything(docket)

    assert occupancy.most == {"a": 1, "b": 1}
    assert occupancy.most_in_all == 2


async def test_the_old_form_lets_one_run_at_a_time_by_default(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: str, limit: ConcurrencyLimit = ConcurrencyLimit("customer")) -> None:
        await occupancy.visit(customer)

    for _ in range(3):
        await docket.add(serve)("a")
    await run_everything(docket)

    assert occupancy.most == {"a": 1}


def with_annotation(occupancy: Occupancy, name: str, scope: str) -> Callable[..., Any]:
    async def serve(customer: Annotated[str, ConcurrencyLimit(1, scope=scope)]) -> None:
        await occupancy.visit(customer, 0.06)

    serve.__name__ = name
    return serve


def with_old_form(occupancy: Occupancy, name: str, scope: str) -> Callable[..., Any]:
    async def serve(
        customer: str, limit: ConcurrencyLimit = ConcurrencyLimit("customer", max_concurrent=1, scope=scope)
    ) -> None:
        await occupancy.visit(customer, 0.06)

    serve.__name__ = name
    return serve


@pytest.mark.parametrize("form", [with_annotation, with_old_form])
async def test_tasks_of_one_scope_share_a_limit(
    docket: Docket, occupancy: Occupancy, form: Callable[[Occupancy, str, str], Callable[..., Any]]
) -> None:
    for task in ("first", "second"):
        function = form(occupancy, task, "shared")
        docket.register(function)
        await docket.add(function)("a")
        await docket.add(function)("a")
    await run_everything(docket)

    assert occupancy.most_in_all == 1
    assert len(occupancy.visits) == 4


async def test_different_tasks_without_a_scope_do_not_wait_for_each_other_as_a_whole(
    docket: Docket, occupancy: Occupancy
) -> None:
    meet = asyncio.Barrier(2)

    async def first(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await within(meet.wait(), 5)

    async def second(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await within(meet.wait(), 5)

    executions = [await docket.add(first)(), await docket.add(second)()]
    await run_everything(docket)

    for execution in executions:
        await execution.sync()
        assert execution.state == ExecutionState.COMPLETED


async def test_the_limit_holds_across_workers(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(1)], number: int) -> None:
        await occupancy.visit(customer, 0.04)

    for number in range(6):
        await docket.add(serve)("a", number)
    async with worker_for(docket, name="x") as first, worker_for(docket, name="y") as second:
        await asyncio.gather(ends(first.run_until_finished()), ends(second.run_until_finished()))

    assert occupancy.most == {"a": 1}
    assert len(occupancy.visits) == 6


async def test_a_blocked_task_does_not_hold_a_slot_of_the_worker(docket: Docket) -> None:
    started, finish, other_ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)]) -> None:
        started.set()
        await finish.wait()

    async def other() -> None:
        other_ran.set()

    async with worker_for(docket, concurrency=2) as worker, running(worker):
        await docket.add(hold)("a")
        await within(started.wait())
        for _ in range(5):
            await docket.add(hold)("a")
        await docket.add(other)()
        await within(other_ran.wait())
        finish.set()


async def test_a_blocked_task_can_be_cancelled_while_it_waits(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)], name: str) -> None:
        ran.append(name)
        started.set()
        await finish.wait()

    async with running(worker):
        first = await docket.add(hold, key="first")("a", "first")
        await within(started.wait())
        second = await docket.add(hold, key="second")("a", "second")
        third = await docket.add(hold, key="third")("a", "third")
        await docket.cancel("second")
        await reaches(second, ExecutionState.CANCELLED)
        finish.set()
        await reaches(first, ExecutionState.COMPLETED)
        await reaches(third, ExecutionState.COMPLETED)

    assert ran == ["first", "third"]


async def test_a_blocked_task_starts_as_soon_as_a_slot_frees(docket: Docket) -> None:
    loop = asyncio.get_running_loop()
    times: list[tuple[float, float]] = []

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)]) -> None:
        began = loop.time()
        await asyncio.sleep(0.05)
        times.append((began, loop.time()))

    async with Worker(docket) as worker:
        for _ in range(3):
            await docket.add(hold)("a")
        await ends(worker.run_until_finished())

    gaps = [times[1][0] - times[0][1], times[2][0] - times[1][1]]
    assert all(0 <= gap < 1 for gap in gaps)


@pytest.mark.parametrize("ending", ["failure", "timeout"])
async def test_a_task_that_fails_frees_its_slot(docket: Docket, ending: str) -> None:
    ran: list[int] = []

    async def burn(
        customer: Annotated[str, ConcurrencyLimit(1)],
        number: int,
        timeout: Timeout = Timeout(timedelta(milliseconds=50)),
    ) -> None:
        ran.append(number)
        if ending == "failure":
            raise ValueError("smoke")
        await asyncio.sleep(30)

    for number in range(3):
        await docket.add(burn)("a", number)
    await run_everything(docket)

    assert sorted(ran) == [0, 1, 2]


async def test_a_task_that_is_cancelled_while_it_runs_frees_its_slot(docket: Docket, worker: Worker) -> None:
    started = asyncio.Event()

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)], stay: bool) -> None:
        started.set()
        if stay:
            await asyncio.sleep(30)

    async with running(worker):
        await docket.add(hold, key="first")("a", True)
        await within(started.wait())
        second = await docket.add(hold)("a", False)
        await docket.cancel("first")
        await reaches(second, ExecutionState.COMPLETED)


async def test_a_limited_task_may_retry(docket: Docket) -> None:
    attempts: list[int] = []

    async def burn(customer: Annotated[str, ConcurrencyLimit(1)], retry: Retry = Retry(attempts=3)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    await docket.add(burn)("a")
    await run_everything(docket)

    assert attempts == [1, 2, 3]


async def test_a_limited_task_may_be_perpetual(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(customer: Annotated[str, ConcurrencyLimit(1)], perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)

    await docket.add(tick, key="k")("a")
    await ends(worker.run_at_most({"k": 3}))

    assert len(runs) == 3


async def test_many_blocked_tasks_all_run_exactly_once(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(2)], number: int) -> None:
        await occupancy.visit(number, 0.001)

    for number in range(60):
        await docket.add(serve)("a", number)
    async with worker_for(docket, name="x") as first, worker_for(docket, name="y") as second:
        await asyncio.gather(ends(first.run_until_finished()), ends(second.run_until_finished()))

    assert sorted(occupancy.visits, key=int) == [str(number) for number in range(60)]
    assert occupancy.most_in_all <= 2


async def test_a_limit_on_an_argument_that_is_missing_fails_the_task_and_names_those_that_exist(
    docket: Docket,
) -> None:
    ran: list[int] = []

    async def serve(customer: str, region: str, limit: ConcurrencyLimit = ConcurrencyLimit("nobody")) -> None:
        ran.append(1)

    execution = await docket.add(serve)("a", "north")
    await run_everything(docket)
    await execution.sync()

    assert ran == []
    assert execution.state == ExecutionState.FAILED
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the type is free, the text is not
        await execution.get_result()
    text = repr(caught.value) + str(execution.error)
    assert "nobody" in text
    assert "customer" in text
    assert "region" in text


async def test_a_limit_on_an_argument_that_a_call_leaves_out_fails_that_task(docket: Docket) -> None:
    async def serve(region: str, limit: ConcurrencyLimit = ConcurrencyLimit("customer"), **more: str) -> None: ...

    with_it = await docket.add(serve)("north", customer="a")
    without = await docket.add(serve)("north", order="o")
    await run_everything(docket)
    await with_it.sync()
    await without.sync()

    assert with_it.state == ExecutionState.COMPLETED
    assert without.state == ExecutionState.FAILED
    with pytest.raises(ExceptionGroup) as caught:
        await without.get_result()
    assert caught.group_contains(ValueError, match="customer.*order")


async def test_a_task_may_have_limits_on_two_parameters(docket: Docket, occupancy: Occupancy) -> None:
    async def serve(customer: Annotated[str, ConcurrencyLimit(1)], region: Annotated[str, ConcurrencyLimit(1)]) -> None:
        await occupancy.visit(customer)
        occupancy.visits.append(region)

    for customer in "ab":
        for region in "xy":
            await docket.add(serve)(customer, region)
    await run_everything(docket)

    assert all(most == 1 for most in occupancy.most.values())
    assert len(occupancy.visits) == 8


async def test_a_blocked_task_is_still_on_the_docket(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)]) -> None:
        started.set()
        await finish.wait()

    async with running(worker):
        await docket.add(hold)("a")
        await within(started.wait())
        blocked = await docket.add(hold, key="blocked")("a")

        async def is_counted() -> bool:
            await blocked.sync()
            waits = blocked.state in (ExecutionState.QUEUED, ExecutionState.SCHEDULED)
            return waits and (await docket.snapshot()).total_tasks == 2

        await eventually(is_counted, "the blocked task waits and is counted")
        again = await docket.add(hold, key="blocked")("b")
        assert again.disposition == Disposition.ALREADY_SCHEDULED
        finish.set()
        await reaches(blocked, ExecutionState.COMPLETED)


async def test_a_blocked_task_can_be_replaced(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    async def hold(customer: Annotated[str, ConcurrencyLimit(1)], name: str) -> None:
        ran.append(name)
        started.set()
        await finish.wait()

    async with running(worker):
        await docket.add(hold)("a", "holder")
        await within(started.wait())
        await docket.add(hold, key="k")("a", "first")
        replaced = await docket.replace(hold, when=now(), key="k")("b", "second")
        await eventually(lambda: "second" in ran, "the second has run")
        finish.set()
        await reaches(replaced, ExecutionState.COMPLETED)

    assert ran == ["holder", "second"]


async def test_the_key_of_a_limit_is_known_inside_a_run_only(docket: Docket) -> None:
    keys: list[str] = []
    limit = ConcurrencyLimit(max_concurrent=2)

    async def work(limit: ConcurrencyLimit = limit) -> None:
        keys.append(limit.concurrency_key)

    await docket.add(work)()
    await run_everything(docket)

    assert len(keys) == 1
    with pytest.raises(RuntimeError, match="available only inside a run"):
        _ = limit.concurrency_key


async def test_a_limit_passed_by_keyword_replaces_the_declared_one(docket: Docket, occupancy: Occupancy) -> None:
    async def visit(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=5)) -> None:
        await occupancy.visit("all")

    for _ in range(6):
        await docket.add(visit)(limit=ConcurrencyLimit(max_concurrent=1))
    await run_everything(docket)

    assert len(occupancy.visits) == 6
    assert occupancy.most_in_all == 1


async def test_a_limit_can_be_taken_away_for_one_task(docket: Docket) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(limit: ConcurrencyLimit | None = ConcurrencyLimit(max_concurrent=1)) -> None:
        if limit is not None:
            begun.set()
            await go_on.wait()

    await docket.add(hold)()
    async with worker_for(docket) as worker, running(worker):
        await within(begun.wait())
        execution = await docket.add(hold)(limit=None)
        await within(execution.get_result())
        go_on.set()
