"""Tasks that come again and again."""

import asyncio
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from docket import Docket, Execution, ExecutionState, Perpetual, Retry, TaskKey, Worker
from docket.dependencies import CompletionHandler, current_execution
from docket.testing import Clock
from docket.worker.fleet import seeder
from tests.running import run_everything, running, worker_for
from tests.times import later, now
from tests.waiting import ends, eventually, wait_until_scheduled, within

HOUR = timedelta(hours=1)


async def test_a_perpetual_task_runs_again_under_the_same_key(docket: Docket, worker: Worker) -> None:
    keys: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:

        keys.append(current_execution.get().key)

    await docket.add(tick, key="k")()
    await ends(worker.run_at_most({"k": 3}))

    assert keys == ["k"] * 3


async def test_a_perpetual_task_keeps_its_arguments(docket: Docket, worker: Worker) -> None:
    seen: list[tuple[int, str]] = []

    async def tick(number: int, *, word: str, perpetual: Perpetual = Perpetual()) -> None:
        seen.append((number, word))

    await docket.add(tick, key="k")(7, word="x")
    await ends(worker.run_at_most({"k": 3}))

    assert seen == [(7, "x")] * 3


async def test_the_next_run_is_one_interval_after_the_start(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        await asyncio.sleep(0.2)

    await docket.add(tick, key="k")()
    async with running(worker):
        began = now()
        coming = await wait_until_scheduled(docket, "k")
        arrived = now()

    assert began + HOUR - timedelta(seconds=1) <= coming.when
    assert coming.when <= arrived + HOUR - timedelta(milliseconds=150)


async def test_a_run_longer_than_the_interval_is_followed_at_once(docket: Docket, worker: Worker) -> None:
    times: list[tuple[datetime, datetime]] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=20))) -> None:
        began = now()
        await asyncio.sleep(0.1)
        times.append((began, now()))

    await docket.add(tick, key="k")()
    await ends(worker.run_at_most({"k": 2}))

    (_, end), (start, _) = times
    assert timedelta(0) <= start - end < timedelta(seconds=2)


async def test_a_failing_perpetual_task_goes_on_without_retry(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)
        raise ValueError("smoke")

    await docket.add(tick, key="k")()
    await ends(worker.run_at_most({"k": 3}))

    assert len(runs) == 3


async def test_retries_come_before_the_next_run(docket: Docket, worker: Worker) -> None:
    attempts: list[int] = []

    async def tick(retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("smoke")

    await docket.add(tick, key="k")()
    async with running(worker):
        coming = await wait_until_scheduled(docket, "k")

    assert attempts == [1, 2]
    assert coming.when > now() + HOUR / 2


async def test_the_next_run_starts_with_the_first_attempt(docket: Docket, worker: Worker) -> None:
    attempts: list[int] = []

    async def tick(retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual()) -> None:
        attempts.append(retry.attempt)
        if len(attempts) == 4:
            perpetual.cancel()
        raise ValueError("smoke")

    await docket.add(tick, key="k")()
    await ends(worker.run_until_finished())

    assert attempts == [1, 2, 1, 2]


async def test_a_cancelled_perpetual_does_not_come_again(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> int:
        runs.append(1)
        if len(runs) == 3:
            perpetual.cancel()
        return len(runs)

    execution = await docket.add(tick, key="k")()
    await ends(worker.run_until_finished())
    await execution.sync()

    assert len(runs) == 3
    assert execution.state == ExecutionState.COMPLETED
    assert await execution.get_result() == 3


async def test_a_perpetual_task_may_change_its_arguments(docket: Docket, worker: Worker) -> None:
    seen: list[tuple[int, str]] = []

    async def tick(number: int, word: str = "", perpetual: Perpetual = Perpetual()) -> None:
        seen.append((number, word))
        if number == 3:
            perpetual.cancel()
        perpetual.perpetuate(number + 1, word=word + "x")

    await docket.add(tick, key="k")(1)
    await ends(worker.run_at_most({"k": 2}))

    assert seen == [(1, ""), (2, "x")]


async def test_a_perpetual_task_may_choose_its_next_delay(docket: Docket, worker: Worker) -> None:
    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        perpetual.after(HOUR)

    began = now()
    await docket.add(tick, key="k")()
    async with running(worker):
        coming = await wait_until_scheduled(docket, "k")

    assert began + HOUR - timedelta(seconds=1) <= coming.when <= now() + HOUR


async def test_a_perpetual_task_may_choose_its_next_time(docket: Docket, worker: Worker) -> None:
    target = later()

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        perpetual.at(target)

    await docket.add(tick, key="k")()
    async with running(worker):
        coming = await wait_until_scheduled(docket, "k")

    assert abs(coming.when - target) < timedelta(milliseconds=2)


async def test_a_choice_is_for_one_run_only(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(minutes=1))) -> None:
        times.append(docket.now())
        if len(times) == 1:
            perpetual.after(HOUR)
        if len(times) == 3:
            perpetual.cancel()

    with Clock(docket):
        await docket.add(tick, key="k")()
        await run_everything(docket)

    gaps = [round((after - before).total_seconds()) for before, after in pairwise(times)]
    assert gaps == [3600, 60]


async def test_the_rhythm_of_a_perpetual_task_does_not_drift(docket: Docket) -> None:
    times: list[datetime] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(minutes=10))) -> None:
        times.append(docket.now())
        if len(times) == 5:
            perpetual.cancel()

    with Clock(docket):
        await docket.add(tick, key="k")()
        await run_everything(docket)

    gaps = [round((after - before).total_seconds(), 0) for before, after in pairwise(times)]
    assert gaps == [600] * 4


async def test_an_automatic_task_runs_when_a_worker_starts_under_its_functions_name(
    docket: Docket, worker: Worker
) -> None:
    ran = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        ran.set()

    docket.register(tick)
    async with running(worker):
        await within(ran.wait())
        assert (await wait_until_scheduled(docket, "tick")).function_name == "tick"


async def test_a_perpetual_task_that_is_not_automatic_waits_to_be_added(docket: Docket) -> None:
    ran: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR)) -> None:
        ran.append(1)

    docket.register(tick)
    await run_everything(docket)

    assert ran == []


async def test_an_automatic_task_is_seeded_once_for_the_whole_fleet(docket: Docket, name: str, url: str) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append(1)

    async with Docket(name=name, url=url) as other:
        docket.register(tick)
        other.register(tick)
        first, second = worker_for(docket, name="a"), worker_for(other, name="b")
        async with first, second, running(first), running(second):
            await wait_until_scheduled(docket, "tick")
            assert (await docket.snapshot()).total_tasks == 1
        async with worker_for(docket, name="c") as third, running(third):

            async def is_here() -> bool:
                return [info.name for info in await docket.workers()] == ["c"]

            await eventually(is_here, "only the third worker is listed")

    assert runs == [1]


async def test_an_automatic_task_that_was_added_by_hand_too_is_there_once(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append(1)

    await docket.add(tick, key="tick")()
    async with running(worker):
        await wait_until_scheduled(docket, "tick")

    assert runs == [1]


async def test_an_automatic_task_that_fell_off_is_put_back_by_the_next_worker(docket: Docket) -> None:
    runs: list[int] = []
    ran = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append(1)
        ran.set()

    docket.register(tick)
    for _ in range(2):
        ran.clear()
        async with worker_for(docket) as worker, running(worker):
            await within(ran.wait())
            await wait_until_scheduled(docket, "tick")
        await docket.clear()

    assert runs == [1, 1]


async def test_an_automatic_task_that_falls_off_under_a_running_worker_is_put_back(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seeder.CHECK_SECONDS == 30, "workers look for them twice a minute"
    monkeypatch.setattr(seeder, "CHECK_SECONDS", 1.0)
    runs: list[int] = []
    again = asyncio.Event()

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append(1)
        if len(runs) == 2:
            again.set()

    async with Docket(name=name, url=url, heartbeat_interval=timedelta(milliseconds=50)) as docket:
        docket.register(tick)
        async with worker_for(docket) as worker, running(worker):
            await wait_until_scheduled(docket, "tick")
            await docket.clear()
            await within(again.wait())

    assert runs == [1, 1]


async def test_a_failure_to_put_the_next_run_down_leaves_the_delivery_for_another_try(
    docket: Docket,
) -> None:
    redelivered: list[bool] = []

    class Stubborn(CompletionHandler["Stubborn"]):
        async def __aenter__(self) -> "Stubborn":
            return self

        async def on_complete(self, execution: Execution, outcome: object) -> bool:
            redelivered.append(execution.redelivered)
            if len(redelivered) == 1:
                raise ConnectionError("not now")
            return False

    async def work(handler: Stubborn = Stubborn()) -> None: ...

    execution = await docket.add(work, key="k")()
    for _ in range(2):
        async with worker_for(docket, redelivery_timeout=timedelta(milliseconds=200)) as worker, running(worker):

            async def went_on(count: int = len(redelivered) + 1) -> bool:
                return len(redelivered) >= count

            await eventually(went_on, "the task is delivered again")
            if len(redelivered) == 2:
                break
    await execution.sync()

    assert redelivered == [False, True]


@pytest.mark.parametrize("ending", ["success", "failure"])
async def test_a_perpetual_task_that_was_replaced_while_it_ran_does_not_come_over_its_replacement(
    docket: Docket, worker: Worker, ending: str
) -> None:
    ran: list[str] = []

    async def replacement() -> None:
        ran.append("replacement")

    async def tick(perpetual: Perpetual = Perpetual(), retry: Retry = Retry(attempts=3)) -> None:
        ran.append("original")
        await docket.replace(replacement, when=now(), key="k")()
        if ending == "failure":
            raise ValueError("smoke")

    await docket.add(tick, key="k")()
    await ends(worker.run_until_finished())

    assert ran == ["original", "replacement"]


@pytest.mark.parametrize(
    ("names", "key"), [(["tick", "alias"], "tick"), (["alias", "tick"], "tick"), (["one", "two"], "one")]
)
async def test_an_automatic_task_of_several_names_is_seeded_once(
    docket: Docket, worker: Worker, names: list[str], key: str
) -> None:
    ran: list[str] = []

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True), key: str = TaskKey()) -> None:
        ran.append(key)

    docket.register(tick, names=names)
    async with running(worker):
        await waits_for_an_hour(docket, key)
        waiting = [execution.key for execution in (await docket.snapshot()).future]

    assert ran == [key]
    assert waiting == [key]


async def waits_for_an_hour(docket: Docket, key: str) -> None:
    async def is_there() -> bool:
        execution = await docket.get_execution(key)
        return execution is not None and execution.when > now() + HOUR / 2

    await eventually(is_there, f"{key} is scheduled for an hour later")


@pytest.mark.parametrize("how", ["docket.cancel", "perpetual.cancel"])
async def test_an_automatic_chain_that_is_cancelled_stays_so_until_a_newer_deploy_starts(
    name: str, url: str, how: str
) -> None:
    runs: list[str] = []
    ended = asyncio.Event()

    async def tick(  # pyright: ignore[reportRedeclaration] - the next deploy's function has the same name
        perpetual: Perpetual = Perpetual(every=HOUR, automatic=True),
    ) -> None:
        runs.append("first deploy")
        if how == "perpetual.cancel":
            perpetual.cancel()
            ended.set()

    async with Docket(name=name, url=url) as docket:
        docket.register(tick)
        async with worker_for(docket) as worker, running(worker):
            if how == "docket.cancel":
                await wait_until_scheduled(docket, "tick")
                await docket.cancel("tick")
            else:
                await within(ended.wait())
            await worker.runs.wait_idle()
            # As it looks every half minute for what has fallen off.
            await worker.staff.seeder.seed()
            assert (await docket.snapshot()).total_tasks == 0
        async with worker_for(docket) as worker, running(worker):
            await eventually(lambda: worker.is_working, "the worker works")
            assert (await docket.snapshot()).total_tasks == 0
    assert runs == ["first deploy"]

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append("second deploy")

    async with Docket(name=name, url=url) as docket:
        docket.register(tick)
        async with worker_for(docket) as worker, running(worker):
            await wait_until_scheduled(docket, "tick")
    assert runs == ["first deploy", "second deploy"]


async def test_a_cancelled_automatic_chain_can_be_added_again_by_hand(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=HOUR, automatic=True)) -> None:
        runs.append(1)

    docket.register(tick)
    async with running(worker):
        await wait_until_scheduled(docket, "tick")
        await docket.cancel("tick")
        await docket.add(tick, key="tick")()
        await eventually(lambda: len(runs) == 2, "the second run has begun")
        await wait_until_scheduled(docket, "tick")
        await worker.staff.seeder.seed()
        await docket.clear()
        # It fell off: it is put back like any other.
        await worker.staff.seeder.seed()
        await eventually(lambda: len(runs) == 3, "the third run has begun")


async def test_arguments_for_the_next_run_that_do_not_fit_are_an_error_where_they_are_written(docket: Docket) -> None:
    raised: list[TypeError] = []

    async def again(number: int, perpetual: Perpetual = Perpetual()) -> None:
        for arguments in ({"numbr": 2}, {}):
            try:
                perpetual.perpetuate(**arguments)
            except TypeError as error:
                raised.append(error)
        if number == 1:
            perpetual.perpetuate(2)
        else:
            perpetual.cancel()

    await docket.add(again)(1)
    await run_everything(docket)

    assert len(raised) == 4
    assert "again() got an unexpected keyword argument 'numbr'" in str(raised[0])
    assert "missing 1 required positional argument: 'number'" in str(raised[1])
