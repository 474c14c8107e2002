"""Dependencies that users write themselves."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any

import pytest

from docket import Docket, Execution, ExecutionState, Perpetual, Retry, Timeout, Worker
from docket.dependencies import (
    AdmissionBlocked,
    CompletionHandler,
    Dependency,
    FailureHandler,
    Runtime,
    TaskOutcome,
    current_execution,
    get_annotation_dependencies,
    get_dependency_parameters,
    get_single_dependency_of_type,
    get_single_dependency_parameter_of_type,
    validate_dependencies,
)
from tests.running import run_everything, worker_for
from tests.times import soon
from tests.waiting import ends


class Lamp(Dependency["Lamp"]):
    """Notes when it is switched on and off."""

    def __init__(self, events: list[str], name: str = "lamp") -> None:
        self.events = events
        self.name = name

    async def __aenter__(self) -> "Lamp":
        self.events.append(f"{self.name} on")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.events.append(f"{self.name} off")


async def test_a_dependency_is_entered_before_the_task_and_left_after(docket: Docket) -> None:
    events: list[str] = []

    async def read(lamp: Lamp = Lamp(events)) -> None:
        lamp.events.append("read")

    await docket.add(read)()
    await run_everything(docket)

    assert events == ["lamp on", "read", "lamp off"]


async def test_a_dependency_gives_the_task_what_it_returns_on_entry(docket: Docket) -> None:
    seen: list[object] = []

    class Number(Dependency[int]):
        async def __aenter__(self) -> int:
            return 42

    async def look(number: Any = Number()) -> None:
        seen.append(number)

    await docket.add(look)()
    await run_everything(docket)

    assert seen == [42]


async def test_a_dependency_knows_the_execution_the_docket_and_the_worker(docket: Docket, worker: Worker) -> None:
    seen: list[object] = []

    class Nosy(Dependency["Nosy"]):
        async def __aenter__(self) -> "Nosy":
            seen.extend([self.execution.get().key, self.docket.get(), self.worker.get()])  # pyright: ignore
            return self

    async def look(nosy: Nosy = Nosy()) -> None: ...

    await docket.add(look, key="k")()
    await ends(worker.run_until_finished())

    assert seen == ["k", docket, worker]


async def test_two_of_a_single_kind_are_refused(docket: Docket) -> None:
    class Crown(Dependency["Crown"]):
        single = True

        async def __aenter__(self) -> "Crown":
            return self

    async def rule(first: Crown = Crown(), second: Crown = Crown()) -> None: ...

    with pytest.raises(ValueError, match="Crown"):
        docket.register(rule)
    with pytest.raises(ValueError, match="Crown"):
        validate_dependencies(rule)


async def test_two_kinds_of_one_building_block_are_refused(docket: Docket) -> None:
    class Eager(FailureHandler["Eager"]):
        async def __aenter__(self) -> "Eager":
            return self

        async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
            return False

    async def work(retry: Retry = Retry(), eager: Eager = Eager()) -> None: ...

    with pytest.raises(ValueError, match="FailureHandler"):
        docket.register(work)


class Stamp(Dependency["Stamp"]):
    """Says to which parameter and value it was bound."""

    def __init__(self, seen: list[tuple[str, Any]]) -> None:
        self.seen = seen
        self.bound: tuple[str, Any] | None = None

    def bind_to_parameter(self, name: str, value: Any) -> "Stamp":
        bound = Stamp(self.seen)
        bound.bound = (name, value)
        return bound

    async def __aenter__(self) -> "Stamp":
        assert self.bound is not None
        self.seen.append(self.bound)
        return self


async def test_a_dependency_in_an_annotation_is_bound_to_parameter_and_value(docket: Docket) -> None:
    seen: list[tuple[str, Any]] = []
    stamp = Stamp(seen)

    async def send(letter: Annotated[str, stamp], parcel: Annotated[int, stamp]) -> str:
        return letter

    execution = await docket.add(send)("hello", parcel=3)
    await run_everything(docket)

    assert sorted(seen) == [("letter", "hello"), ("parcel", 3)]
    assert await execution.get_result() == "hello"
    assert stamp.bound is None


class Announced(Runtime["Announced"]):
    """Runs the body with an announcement round it."""

    def __init__(self, events: list[object]) -> None:
        self.events = events

    async def __aenter__(self) -> "Announced":
        return self

    async def run(self, execution: Execution, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.events.append(("begin", execution.key, function.__name__, args))
        try:
            return await function(*args, **kwargs)
        finally:
            self.events.append("end")


async def test_a_runtime_runs_the_body(docket: Docket) -> None:
    events: list[object] = []

    async def work(number: int, *, word: str, runtime: Announced = Announced(events)) -> str:
        events.append("body")
        return word * number

    execution = await docket.add(work, key="k")(2, word="x")
    await run_everything(docket)

    assert await execution.get_result() == "xx"
    assert events == [("begin", "k", "work", (2,)), "body", "end"]


async def test_what_a_runtime_returns_is_the_result(docket: Docket) -> None:
    class Instead(Runtime["Instead"]):
        async def __aenter__(self) -> "Instead":
            return self

        async def run(self, execution: Execution, function: Any, args: Any, kwargs: Any) -> Any:
            return "instead"

    async def work(runtime: Instead = Instead()) -> str:
        raise AssertionError("is not called")

    execution = await docket.add(work)()
    await run_everything(docket)

    assert await execution.get_result() == "instead"


async def test_what_a_runtime_raises_fails_the_task(docket: Docket) -> None:
    class Broken(Runtime["Broken"]):
        async def __aenter__(self) -> "Broken":
            return self

        async def run(self, execution: Execution, function: Any, args: Any, kwargs: Any) -> Any:
            raise LookupError("no engine")

    async def work(runtime: Broken = Broken(), retry: Retry = Retry(attempts=2)) -> None: ...

    execution = await docket.add(work)()
    await run_everything(docket)

    with pytest.raises(LookupError, match="no engine"):
        await execution.get_result()


class Watchful(FailureHandler["Watchful"]):
    """Notes failures, and deals with the first few by scheduling the task again."""

    def __init__(self, seen: list[TaskOutcome], deals_with: int = 0) -> None:
        self.seen = seen
        self.deals_with = deals_with

    async def __aenter__(self) -> "Watchful":
        return self

    async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
        self.seen.append(outcome)
        if len(self.seen) > self.deals_with:
            return False
        execution.when = soon(10)
        execution.attempt += 1
        await execution.schedule(replace=True)
        return True


async def test_a_failure_handler_is_asked_about_a_failure(docket: Docket) -> None:
    seen: list[TaskOutcome] = []

    async def burn(handler: Watchful = Watchful(seen)) -> None:
        await asyncio.sleep(0.02)
        raise ValueError("smoke")

    execution = await docket.add(burn)()
    await run_everything(docket)
    await execution.sync()

    (outcome,) = seen
    assert isinstance(outcome.exception, ValueError)
    assert outcome.result is None
    assert outcome.duration >= timedelta(milliseconds=15)
    assert execution.state == ExecutionState.FAILED


async def test_a_failure_handler_is_not_asked_about_success(docket: Docket) -> None:
    seen: list[TaskOutcome] = []

    async def work(handler: Watchful = Watchful(seen)) -> None: ...

    await docket.add(work)()
    await run_everything(docket)

    assert seen == []


async def test_a_failure_that_was_dealt_with_is_no_ending(docket: Docket) -> None:
    seen: list[TaskOutcome] = []
    attempts: list[int] = []

    async def burn(handler: Watchful = Watchful(seen, deals_with=1)) -> str:
        attempts.append(current_execution.get().attempt)
        if len(attempts) == 1:
            raise ValueError("smoke")
        return "done"

    execution = await docket.add(burn)()
    await run_everything(docket)

    assert await execution.get_result() == "done"
    assert execution.state == ExecutionState.COMPLETED
    assert attempts == [1, 2]


class Counting(CompletionHandler["Counting"]):
    """Notes how the task ended, and runs it again a few times."""

    def __init__(self, seen: list[TaskOutcome], again: int = 0) -> None:
        self.seen = seen
        self.again = again

    async def __aenter__(self) -> "Counting":
        return self

    async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
        self.seen.append(outcome)
        if len(self.seen) > self.again:
            return False
        execution.when = soon(10)
        await execution.schedule(replace=True)
        return True


async def test_a_completion_handler_is_told_of_success(docket: Docket) -> None:
    seen: list[TaskOutcome] = []

    async def work(handler: Counting = Counting(seen)) -> str:
        return "done"

    execution = await docket.add(work)()
    await run_everything(docket)

    (outcome,) = seen
    assert (outcome.result, outcome.exception) == ("done", None)
    assert await execution.get_result() == "done"


async def test_a_completion_handler_is_told_of_failure(docket: Docket) -> None:
    seen: list[TaskOutcome] = []

    async def burn(handler: Counting = Counting(seen)) -> None:
        raise ValueError("smoke")

    execution = await docket.add(burn)()
    await run_everything(docket)
    await execution.sync()

    (outcome,) = seen
    assert isinstance(outcome.exception, ValueError)
    assert execution.state == ExecutionState.FAILED


async def test_a_completion_handler_is_not_told_of_a_failure_that_is_retried(docket: Docket) -> None:
    seen: list[TaskOutcome] = []

    async def burn(retry: Retry = Retry(attempts=3), handler: Counting = Counting(seen)) -> str:
        if retry.attempt < 3:
            raise ValueError("smoke")
        return "done"

    await docket.add(burn)()
    await run_everything(docket)

    assert [outcome.result for outcome in seen] == ["done"]


async def test_a_completion_handler_may_run_the_task_again(docket: Docket) -> None:
    seen: list[TaskOutcome] = []
    runs: list[int] = []

    async def work(handler: Counting = Counting(seen, again=2)) -> int:
        runs.append(1)
        return len(runs)

    execution = await docket.add(work)()
    await run_everything(docket)

    assert len(runs) == 3
    assert await execution.get_result() == 3


def test_an_outcome_holds_duration_result_and_exception() -> None:
    outcome = TaskOutcome(timedelta(seconds=1))

    assert (outcome.duration, outcome.result, outcome.exception) == (timedelta(seconds=1), None, None)


class Door(Dependency["Door"]):
    """Turns the task away for the first few times."""

    def __init__(self, asked: list[float], turns_away: int = 1, **how: Any) -> None:
        self.asked = asked
        self.turns_away = turns_away
        self.how = how

    async def __aenter__(self) -> "Door":
        self.asked.append(asyncio.get_running_loop().time())
        if len(self.asked) <= self.turns_away:
            raise AdmissionBlocked(current_execution.get(), "the door is shut", **self.how)
        return self


async def test_a_task_that_is_turned_away_comes_again(docket: Docket) -> None:
    asked: list[float] = []
    ran: list[int] = []

    async def enter(door: Door = Door(asked, turns_away=2)) -> None:
        ran.append(1)

    execution = await docket.add(enter)()
    await run_everything(docket)
    await execution.sync()

    assert len(asked) == 3
    assert ran == [1]
    assert execution.state == ExecutionState.COMPLETED


async def test_being_turned_away_is_no_attempt(docket: Docket) -> None:
    attempts: list[int] = []

    async def enter(door: Door = Door([], turns_away=3), retry: Retry = Retry(attempts=1)) -> None:
        attempts.append(retry.attempt)

    await docket.add(enter)()
    await run_everything(docket)

    assert attempts == [1]


async def test_the_delay_after_being_turned_away_can_be_chosen(docket: Docket) -> None:
    asked: list[float] = []

    async def enter(door: Door = Door(asked, retry_delay=timedelta(milliseconds=150))) -> None: ...

    await docket.add(enter)()
    await run_everything(docket)

    assert 0.14 <= asked[1] - asked[0] < 3


async def test_a_task_that_is_turned_away_for_good_never_runs(docket: Docket) -> None:
    asked: list[float] = []
    ran: list[int] = []

    async def enter(door: Door = Door(asked, turns_away=5, reschedule=False)) -> None:
        ran.append(1)

    await docket.add(enter, key="k")()
    await run_everything(docket)

    assert len(asked) == 1
    assert ran == []
    assert (await docket.snapshot()).total_tasks == 0


async def test_the_key_of_a_task_that_was_turned_away_for_good_is_free(docket: Docket) -> None:
    ran: list[int] = []

    async def enter(door: Door = Door([], turns_away=1, reschedule=False)) -> None:
        ran.append(1)

    for _ in range(2):
        await docket.add(enter, key="k")()
        await run_everything(docket)

    assert ran == [1]


async def test_a_dependency_may_put_the_task_away_itself(docket: Docket) -> None:
    ran: list[int] = []
    asked: list[int] = []

    class Shelf(Dependency["Shelf"]):
        async def __aenter__(self) -> "Shelf":
            asked.append(1)
            if len(asked) == 1:
                execution = current_execution.get()
                execution.when = soon(30)
                await execution.schedule(replace=True)
                raise AdmissionBlocked(execution, "shelved", handled=True)
            return self

    async def enter(shelf: Shelf = Shelf()) -> None:
        ran.append(1)

    await docket.add(enter, key="k")()
    await run_everything(docket)

    assert len(asked) == 2
    assert ran == [1]


async def test_a_perpetual_task_that_is_turned_away_goes_on(docket: Docket) -> None:
    ran: list[int] = []

    async def enter(door: Door = Door([], turns_away=2), perpetual: Perpetual = Perpetual()) -> None:
        ran.append(1)
        if len(ran) == 2:
            perpetual.cancel()

    await docket.add(enter, key="k")()
    await run_everything(docket)

    assert len(ran) == 2


async def test_other_dependencies_are_closed_when_one_turns_the_task_away(docket: Docket) -> None:
    events: list[str] = []

    async def enter(lamp: Lamp = Lamp(events), door: Door = Door([])) -> None:
        events.append("enter")

    await docket.add(enter)()
    await run_everything(docket)

    assert events == ["lamp on", "lamp off", "lamp on", "enter", "lamp off"]


def test_being_turned_away_says_which_task_and_why(name: str, url: str) -> None:
    async def enter() -> None: ...

    execution = Execution(Docket(name=name, url=url), enter, (), {}, "k", soon())
    blocked = AdmissionBlocked(execution, "the door is shut", retry_delay=timedelta(seconds=3))

    assert blocked.execution is execution
    assert blocked.reason == "the door is shut"
    assert (blocked.handled, blocked.reschedule, blocked.retry_delay) == (False, True, timedelta(seconds=3))
    assert "the door is shut" in str(blocked)


async def test_a_kind_of_dependency_may_live_as_long_as_the_worker(docket: Docket) -> None:
    events: list[object] = []

    class Engine(Dependency["Engine"]):
        @classmethod
        @asynccontextmanager
        async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None]:
            events.append(("start", docket.name, worker.name))
            yield
            events.append("stop")

        async def __aenter__(self) -> "Engine":
            events.append("task")
            return self

    async def work(engine: Engine = Engine()) -> None: ...

    docket.register(work)
    async with worker_for(docket, name="w") as worker:
        await docket.add(work)()
        await docket.add(work)()
        await ends(worker.run_until_finished())

    assert events == [("start", docket.name, "w"), "task", "task", "stop"]


async def test_a_kind_of_dependency_may_have_nothing_to_open_for_a_worker(docket: Docket) -> None:
    asked: list[str] = []

    class Engine(Dependency["Engine"]):
        @classmethod
        def worker_lifecycle(cls, docket: Docket, worker: Worker) -> None:
            asked.append(worker.name)

        async def __aenter__(self) -> "Engine":
            return self

    async def work(engine: Engine = Engine()) -> str:
        return "done"

    docket.register(work)
    execution = await docket.add(work)()
    await run_everything(docket, name="w")

    assert asked == ["w"]
    assert await execution.get_result() == "done"


def test_tools_find_the_dependencies_of_a_function() -> None:
    stamp = Stamp([])
    timeout = Timeout(timedelta(seconds=1))

    async def work(letter: Annotated[str, stamp], timeout: Timeout = timeout, retry: Retry = Retry()) -> None: ...

    assert set(get_dependency_parameters(work)) == {"timeout", "retry"}
    assert get_annotation_dependencies(work) == {"letter": [stamp]}
    assert get_single_dependency_parameter_of_type(work, Timeout) is timeout
    assert get_single_dependency_parameter_of_type(work, Perpetual) is None
    assert get_single_dependency_of_type({"a": timeout, "b": 1}, Timeout) is timeout
