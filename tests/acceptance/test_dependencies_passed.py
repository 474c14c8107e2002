"""Behaviours that a caller passes for a parameter: they replace the declared ones for that task."""

import asyncio
import logging
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from docket import Cron, Docket, ExecutionState, ExponentialRetry, Perpetual, RateLimit, Retry, Timeout
from docket.dependencies import (
    CallArgument,
    CompletionHandler,
    Dependency,
    Depends,
    FailureHandler,
    Runtime,
    TaskOutcome,
)
from docket.execution import Execution
from tests.running import run_everything, running, worker_for
from tests.times import later, soon
from tests.waiting import ends, eventually

TWO = [Retry(attempts=2), ExponentialRetry(attempts=2, minimum_delay=timedelta(milliseconds=1))]


@pytest.mark.parametrize("passed", TWO, ids=lambda retry: type(retry).__name__)
async def test_a_retry_passed_by_keyword_governs_every_attempt_and_knows_it(docket: Docket, passed: Retry) -> None:
    attempts: list[int] = []

    async def burn(what: str, retry: Retry = Retry(attempts=5)) -> None:
        attempts.append(retry.attempt)
        raise ValueError(what)

    execution = await docket.add(burn)("smoke", retry=passed)
    await run_everything(docket)
    await execution.sync()

    assert attempts == [1, 2]
    assert execution.state == ExecutionState.FAILED


async def test_a_retry_passed_by_position_governs_the_task(docket: Docket) -> None:
    attempts: list[int] = []

    async def burn(what: str, retry: Retry = Retry()) -> None:
        attempts.append(retry.attempt)
        raise ValueError(what)

    await docket.add(burn)("smoke", Retry(attempts=3))
    await run_everything(docket)

    assert attempts == [1, 2, 3]


async def test_other_calls_of_the_task_keep_the_declared_retry(docket: Docket) -> None:
    attempts: list[int] = []

    async def burn(retry: Retry = Retry()) -> None:
        attempts.append(retry.attempt)
        raise ValueError

    await docket.add(burn)(retry=Retry(attempts=2))
    await run_everything(docket)
    await docket.add(burn)()
    await run_everything(docket)

    assert attempts == [1, 2, 1]


async def test_a_retry_can_be_taken_away_for_one_task(docket: Docket) -> None:
    runs: list[Retry | None] = []

    async def burn(retry: Retry | None = Retry(attempts=5)) -> None:
        runs.append(retry)
        raise ValueError

    await docket.add(burn)(retry=None)
    await run_everything(docket)

    assert runs == [None]


async def test_a_passed_retry_counts_where_another_dependency_fails(docket: Docket) -> None:
    opened: list[int] = []

    async def broken() -> None:
        opened.append(1)
        raise ConnectionError

    async def burn(resource: None = Depends(broken), retry: Retry = Retry()) -> None: ...

    await docket.add(burn)(retry=Retry(attempts=3))
    await run_everything(docket)

    assert len(opened) == 3


async def test_a_passed_retry_counts_where_a_dependency_of_the_worker_fails(docket: Docket) -> None:
    opened: list[int] = []

    async def broken() -> None:
        opened.append(1)
        raise ConnectionError

    async def burn(retry: Retry = Retry()) -> None: ...

    await docket.add(burn)(retry=Retry(attempts=3))
    await run_everything(docket, dependencies={"resource": Depends(broken)})

    assert len(opened) == 3


async def test_other_dependencies_see_the_passed_behaviour_as_the_body_does(docket: Docket) -> None:
    seen: list[tuple[Retry, int]] = []

    def attempt_of(retry: Retry = CallArgument()) -> int:
        return retry.attempt

    async def burn(retry: Retry = Retry(), attempt: int = Depends(attempt_of)) -> None:
        seen.append((retry, attempt))
        raise ValueError

    await docket.add(burn)(retry=Retry(attempts=2))
    await run_everything(docket)

    assert [(retry.attempt, attempt) for retry, attempt in seen] == [(1, 1), (2, 2)]


async def test_a_timeout_passed_by_keyword_ends_the_run(docket: Docket) -> None:
    async def dawdle(timeout: Timeout = Timeout(timedelta(hours=1))) -> None:
        await asyncio.Event().wait()

    execution = await docket.add(dawdle)(timeout=Timeout(timedelta(milliseconds=20)))
    await run_everything(docket)

    with pytest.raises(TimeoutError, match=r"took longer than its Timeout"):
        await execution.get_result()


async def test_a_perpetual_passed_by_keyword_says_when_the_task_runs_again(docket: Docket) -> None:
    runs: list[timedelta] = []

    async def beat(perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None:
        runs.append(perpetual.every)

    await docket.add(beat, key="beat")(perpetual=Perpetual(every=timedelta(milliseconds=1)))
    async with worker_for(docket) as worker:
        await ends(worker.run_at_most({"beat": 3}))

    assert runs == [timedelta(milliseconds=1)] * 3


async def test_a_passed_perpetual_stays_when_the_task_changes_its_arguments(docket: Docket) -> None:
    runs: list[tuple[int, timedelta]] = []

    async def count(number: int, perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None:
        runs.append((number, perpetual.every))
        perpetual.perpetuate(number + 1)

    await docket.add(count, key="count")(1, perpetual=Perpetual(every=timedelta(milliseconds=1)))
    async with worker_for(docket) as worker:
        await ends(worker.run_at_most({"count": 3}))

    assert runs == [(number, timedelta(milliseconds=1)) for number in (1, 2, 3)]


async def test_a_passed_perpetual_goes_on_after_a_limit_that_drops_a_run(docket: Docket) -> None:
    async def beat(
        perpetual: Perpetual | None = Depends(lambda: None),
        limit: RateLimit = RateLimit(1, per=timedelta(hours=2), drop=True),
    ) -> None: ...

    execution = await docket.add(beat, key="beat")(perpetual=Perpetual())

    async def waits_for_its_turn() -> bool:
        await execution.sync()
        return execution.when > later()

    async with worker_for(docket) as worker, running(worker):
        await eventually(waits_for_its_turn, "the next run waits for its turn")

    assert execution.state == ExecutionState.SCHEDULED


async def test_a_cron_passed_by_keyword_says_when_the_task_runs_again(docket: Docket) -> None:
    async def report(cron: Perpetual = Perpetual()) -> None: ...

    vienna = ZoneInfo("Europe/Vienna")
    execution = await docket.add(report)(cron=Cron("30 4 1 1 *", automatic=False, tz=vienna))

    async def waits_for_its_time() -> bool:
        await execution.sync()
        return execution.when > later()

    async with worker_for(docket) as worker, running(worker):
        await eventually(waits_for_its_time, "the next run waits for its time")

    next_run = execution.when.astimezone(vienna)
    assert (next_run.month, next_run.day, next_run.hour, next_run.minute) == (1, 1, 4, 30)


class Twice(Runtime[Any]):
    """Runs the body as often as it was told to."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.key = ""

    async def __aenter__(self) -> "Twice":
        bound = Twice(self.times)
        bound.key = self.execution.get().key  # pyright: ignore
        return bound

    async def run(self, execution: Execution, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for _ in range(self.times):
            await function(*args, **kwargs)


class Forgiving(FailureHandler["Forgiving"]):
    def __init__(self, note: str) -> None:
        self.note = note

    async def __aenter__(self) -> "Forgiving":
        return self

    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        logging.getLogger("forgiving").warning("%s: %r", self.note, outcome.exception)
        return False


class Following(CompletionHandler["Following"]):
    def __init__(self, note: str) -> None:
        self.note = note

    async def __aenter__(self) -> "Following":
        return self

    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        logging.getLogger("following").warning(self.note)
        return False


async def test_a_runtime_of_ones_own_passed_by_keyword_runs_the_body(docket: Docket) -> None:
    runs: list[tuple[int, str]] = []

    async def work(number: int, runtime: Twice = Twice(1)) -> None:
        runs.append((number, runtime.key))

    await docket.add(work, key="work")(7, runtime=Twice(2))
    await run_everything(docket)

    assert runs == [(7, "work")] * 2


async def test_a_runtime_of_ones_own_may_replace_a_behaviour_of_docket(docket: Docket) -> None:
    runs: list[int] = []

    async def work(runtime: Runtime[Any] = Timeout(timedelta(hours=1))) -> None:
        runs.append(1)

    await docket.add(work)(runtime=Twice(3))
    await run_everything(docket)

    assert len(runs) == 3


async def test_handlers_of_ones_own_passed_by_keyword_are_asked(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async def burn(on_failure: Forgiving = Forgiving("declared"), on_end: Following = Following("declared")) -> None:
        raise ValueError("smoke")

    await docket.add(burn)(on_failure=Forgiving("passed"), on_end=Following("passed too"))
    await run_everything(docket)

    said = [record.getMessage() for record in caplog.records if record.name in ("forgiving", "following")]
    assert said == ["passed: ValueError('smoke')", "passed too"]


class Broken(Runtime[Any]):
    async def __aenter__(self) -> "Broken":
        raise ConnectionError("no pool")

    async def run(self, execution: Execution, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


async def test_a_passed_behaviour_that_cannot_be_opened_fails_the_run_by_its_name(docket: Docket) -> None:
    attempts: list[int] = []

    async def work(runtime: Runtime[Any] = Twice(1), retry: Retry = Retry()) -> None:
        attempts.append(retry.attempt)

    execution = await docket.add(work)(runtime=Broken(), retry=Retry(attempts=2))
    await run_everything(docket)

    with pytest.raises(ExceptionGroup, match="runtime"):
        await execution.get_result()
    assert execution.attempt == 2
    assert attempts == []


async def test_what_is_no_behaviour_reaches_the_body_as_it_is(docket: Docket) -> None:
    seen: list[Any] = []

    async def work(name: str = Depends(lambda: "declared"), retry: Retry = Retry(attempts=2)) -> None:
        seen.append((name, retry.attempts))

    await docket.add(work)(name="passed")
    await run_everything(docket)

    assert seen == [("passed", 2)]


@pytest.mark.parametrize(
    "behaviour",
    [
        Retry(attempts=3, delay=timedelta(seconds=2), jitter=0.5, on=(OSError,), never=ConnectionError),
        ExponentialRetry(attempts=None, minimum_delay=timedelta(seconds=2), maximum_delay=timedelta(seconds=9)),
        Timeout(timedelta(seconds=3)),
        Perpetual(every=timedelta(seconds=4), automatic=True),
        Cron("0 4 * * 1", tz=ZoneInfo("Europe/Vienna")),
    ],
    ids=lambda behaviour: type(behaviour).__name__,
)
def test_every_behaviour_can_be_stored_with_a_task(behaviour: Dependency[Any]) -> None:
    assert vars(pickle.loads(pickle.dumps(behaviour))) == vars(behaviour)


async def test_a_behaviour_that_was_used_can_be_passed_on(docket: Docket) -> None:
    """A task may schedule another with the behaviours it runs under itself."""
    attempts: list[tuple[str, int]] = []

    async def inner(retry: Retry = Retry(), timeout: Timeout = Timeout(timedelta(hours=1))) -> None:
        attempts.append(("inner", retry.attempt))
        assert timeout.remaining() < timedelta(minutes=1)
        raise ValueError

    async def outer(retry: Retry = Retry(attempts=2), timeout: Timeout = Timeout(timedelta(minutes=1))) -> None:
        attempts.append(("outer", retry.attempt))
        if retry.attempt == 1:
            raise ValueError
        await docket.add(inner, when=soon())(retry=retry, timeout=timeout)

    docket.register(inner)
    await docket.add(outer)()
    await run_everything(docket)

    assert attempts == [("outer", 1), ("outer", 2), ("inner", 1), ("inner", 2)]


async def test_a_passed_perpetual_with_no_time_of_its_own_begins_when_it_was_added(docket: Docket) -> None:
    async def beat(perpetual: Perpetual = Perpetual()) -> None:
        perpetual.cancel()

    execution = await docket.add(beat, when=datetime.now(UTC))(perpetual=Perpetual(every=timedelta(hours=1)))
    await run_everything(docket)
    await execution.sync()

    assert execution.state == ExecutionState.COMPLETED
