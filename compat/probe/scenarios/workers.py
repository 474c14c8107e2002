"""Workers: life, delivery, stopping, logs (rows A and G1 of the contract)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from compat.probe.place import (
    Place,
    ends,
    eventually,
    hearing,
    later,
    now,
    outcome,
    plain,
    raised,
    run_all,
    running,
    worker_for,
)
from docket import CurrentDocket, CurrentExecution, CurrentWorker, Docket, Execution, Perpetual, Retry, TaskKey, Worker
from docket.dependencies import (
    CompletionHandler,
    Dependency,
    FailureHandler,
    TaskOutcome,
    current_docket,
    current_worker,
)


async def leaving_the_block(place: Place) -> dict[str, Any]:
    """A1: the run in another asyncio task ends with the block."""
    ran: list[int] = []

    async def note(number: int) -> None:
        ran.append(number)

    async with place.docket() as docket:
        docket.register(note)
        async with worker_for(docket) as worker:
            run = asyncio.ensure_future(worker.run_forever())
            await docket.add(note)(1)
            first = await eventually(lambda: 1 in ran)
        await asyncio.wait([run], timeout=3)
        ended = run.done()
        await docket.add(note)(2)
        second = await eventually(lambda: 2 in ran, 1)
        run.cancel()
        await asyncio.wait([run], timeout=5)
    return {"ran_before": first, "run_ended": ended, "ran_after": second}


async def completion_handler_fails(place: Place) -> dict[str, Any]:
    """A2: the task comes back soon."""
    runs: list[int] = []

    class Faulty(CompletionHandler):
        async def __aenter__(self) -> Faulty:
            return self

        async def __aexit__(self, *exception: object) -> None:
            return None

        async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
            if len(runs) == 1:
                raise RuntimeError("the handler fails once")
            return False

    async def task(handler: Faulty = Faulty()) -> None:
        runs.append(1)

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task)()
        async with running(docket, redelivery_timeout=timedelta(seconds=2)):
            again = await eventually(lambda: len(runs) >= 2, 12)

            async def is_completed() -> bool:
                await execution.sync()
                return execution.state.value == "completed"

            completed = await eventually(is_completed, 8)
    return {"runs_again": again, "ends_completed": completed}


async def stopping_is_logged(place: Place) -> dict[str, Any]:
    """A3: what an embedded worker says when it is stopped while a task runs."""
    started, go_on = asyncio.Event(), asyncio.Event()

    async def task() -> None:
        started.set()
        await go_on.wait()

    with hearing() as heard:
        async with place.docket() as docket:
            docket.register(task)
            execution = await docket.add(task)()
            async with worker_for(docket) as worker:
                run = asyncio.ensure_future(worker.run_forever())
                await asyncio.wait_for(started.wait(), 10)
                run.cancel()
                said = await eventually(lambda: heard.has("Shutdown requested, finishing"), 3)
                go_on.set()
                await asyncio.wait([run], timeout=10)
            await execution.sync()
    return {
        "says_shutdown_requested": said,
        "state": execution.state.value,
        "returns": run.done() and not run.cancelled(),
    }


async def starting_is_logged(place: Place) -> dict[str, Any]:
    """G1."""

    async def task(number: int, *, word: str = "x") -> None: ...

    with hearing() as heard:
        async with place.docket() as docket:
            docket.register(task)
            async with worker_for(docket, name="a-worker") as worker:
                await worker.run_until_finished()
    lines = [line.strip() for line in heard.lines("docket.worker")]
    return {
        "first": lines[0] if lines else None,
        "tasks": sorted(line for line in lines if line.startswith("* ")),
    }


async def run_at_most_with_retries(place: Place) -> dict[str, Any]:
    """A4."""

    async def task(retry: Retry = Retry(attempts=5)) -> None:
        raise ValueError("always")

    async def chain(perpetual: Perpetual = Perpetual()) -> None: ...

    async with place.docket() as docket:
        docket.register(task)
        docket.register(chain)
        failing = await docket.add(task, key="failing")()
        chained = await docket.add(chain, key="chained")()
        async with worker_for(docket) as worker:
            ended = await ends(worker.run_at_most({"failing": 2, "chained": 2}))
        await failing.sync()
        await chained.sync()
        left = await docket.snapshot()
    return {
        "ended": ended,
        "failing": failing.state.value,
        "chained": chained.state.value,
        "left": left.total_tasks,
    }


async def worker_lifecycle_returns_none(place: Place) -> dict[str, Any]:
    """A5."""

    class Bare(Dependency[None]):
        @classmethod
        def worker_lifecycle(cls, docket: Docket, worker: Worker) -> None:
            return None

        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *exception: object) -> None: ...

    ran: list[int] = []

    async def task(bare: None = Bare()) -> None:
        ran.append(1)

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task)()
        ended = await run_all(docket)
    return {"ended": ended, "ran": len(ran)}


async def worker_lifecycle_is_opened_and_closed(place: Place) -> dict[str, Any]:
    seen: list[str] = []

    class Opened(Dependency[None]):
        @classmethod
        @asynccontextmanager
        async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> Any:
            seen.append("opened")
            yield
            seen.append("closed")

        async def __aenter__(self) -> None: ...
        async def __aexit__(self, *exception: object) -> None: ...

    async def task(opened: None = Opened()) -> None:
        seen.append("ran")

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task)()
        await run_all(docket)
    return {"seen": seen}


async def context_of_the_block(place: Place) -> dict[str, Any]:
    """A6."""
    async with place.docket() as docket, worker_for(docket) as worker:
        inside = [
            await outcome(lambda: current_docket.get() is docket),
            await outcome(lambda: current_worker.get() is worker),
        ]
    return {"inside": inside, "after": await outcome(lambda: current_worker.get() and True)}


async def empty_texts(place: Place) -> dict[str, Any]:
    """A7."""
    options: dict[str, Any] = {"docket_name": place.name, "url": place.url, "until_finished": True}
    return {
        "dependencies": await outcome(Worker.run(**options, dependencies="")),
        "fallback_task": await outcome(Worker.run(**options, fallback_task="")),
    }


async def server_is_down(place: Place) -> dict[str, Any]:
    """A8: entering a docket whose server is away."""

    async def task() -> None: ...

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    docket = Docket(name=place.name, url=f"redis://127.0.0.1:{port}/0")
    entering = await outcome(docket.__aenter__(), 20)
    seen = {"entering": "works" if entering is docket else entering}
    if entering is docket:
        docket.register(task)
        try:
            await asyncio.wait_for(docket.add(task)(), 20)
            seen["adding"] = "works"
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            seen["adding"] = "a RedisError" if "RedisError" in kinds else raised(error)
        with contextlib.suppress(Exception):
            await docket.__aexit__(None, None, None)
    return seen


async def unknown_function(place: Place) -> dict[str, Any]:
    """What happens to a task whose function this worker does not know."""

    async def task(number: int) -> None: ...

    async with place.docket() as producer:
        producer.register(task)
        execution = await producer.add(task, key="stranger")(3)
    with hearing() as heard:
        async with place.docket() as docket:
            await run_all(docket)
            await execution.sync() if execution.docket is docket else None
            found = await docket.get_execution("stranger")
    return {
        "state": found.state.value if found else None,
        "function_name": found.function_name if found else None,
        "name_of_the_stand_in": found.function.__name__ if found else None,
        "warns": any(line.startswith("Unknown task") for line in heard.lines(at_least=logging.WARNING)),
    }


async def fallback_task(place: Place) -> dict[str, Any]:
    """A10: a fallback gets the arguments and the execution; the default one can be passed."""
    seen: list[Any] = []

    async def task(number: int, word: str) -> None: ...

    async def fallback(*args: Any, execution: Execution = CurrentExecution(), **kwargs: Any) -> None:
        seen.append([list(args), kwargs, execution.function_name])

    async with place.docket() as producer:
        producer.register(task)
        await producer.add(task, key="one")(3, word="x")
    async with place.docket() as docket:
        await run_all(docket, fallback_task=fallback)
        one = await docket.get_execution("one")
    import docket.worker as module

    seen_of_default: dict[str, Any] = {"exists": hasattr(module, "default_fallback_task")}
    if seen_of_default["exists"]:
        with hearing() as heard:
            async with place.docket() as producer:
                producer.register(task)
                await producer.add(task, key="two")(4, word="y")
            async with place.docket() as docket:
                await run_all(docket, fallback_task=module.default_fallback_task)
                two = await docket.get_execution("two")
        seen_of_default["state"] = two.state.value if two else None
        seen_of_default["says"] = [
            line.split("'")[0] + "'" + line.split("'")[1] + "'" for line in heard.lines() if line.startswith("Unknown")
        ]
    return {"calls": seen, "state": one.state.value if one else None, "default": seen_of_default}


async def log_lines(place: Place) -> dict[str, Any]:
    """The lines of starts, ends, retries, reschedules, strikes and cancels."""
    started = asyncio.Event()

    async def good(number: int) -> None: ...

    async def bad(retry: Retry = Retry(attempts=2)) -> None:
        raise ValueError("no")

    async def again(perpetual: Perpetual = Perpetual()) -> None:
        perpetual.cancel() if again_runs else again_runs.append(1)

    async def long() -> None:
        started.set()
        await asyncio.sleep(30)

    async def struck() -> None: ...

    again_runs: list[int] = []
    seen: dict[str, Any] = {}
    async with place.docket() as docket:
        for function in (good, bad, again, long, struck):
            docket.register(function)
        for name in ("good", "bad", "again"):
            with hearing() as heard:
                await docket.add(name, key=f"a-{name}")(*([1] if name == "good" else []))
                await run_all(docket)
            seen[name] = _marked(heard.lines())
        with hearing() as heard:
            await docket.add(long, key="a-long")()
            async with running(docket):
                await asyncio.wait_for(started.wait(), 10)
                await docket.cancel("a-long")
                await eventually(lambda: any("cancelled" in line for line in heard.lines()), 5)
        seen["cancelled"] = _marked(heard.lines())
        with hearing() as heard:
            await docket.add(struck, key="a-struck", when=now() + timedelta(milliseconds=300))()
            await docket.strike(struck)
            async with running(docket):
                await eventually(lambda: any("🗙" in line for line in heard.lines(at_least=logging.DEBUG)), 3)
        seen["struck"] = [line.strip()[:1] for line in heard.lines(at_least=logging.DEBUG) if "🗙" in line]
    return seen


def _marked(lines: list[str]) -> list[str]:
    return [plain(line).strip() for line in lines if line.strip()[:1] in "↪↬↩↫🗙✗"]


async def records_carry_numbers(place: Place) -> dict[str, Any]:
    """G2: the records of a run's start and end."""

    async def task() -> None: ...

    with hearing() as heard:
        async with place.docket() as docket:
            docket.register(task)
            await docket.add(task)()
            await run_all(docket)
    start = next(record for record in heard.records if record.getMessage().strip().startswith("↪"))
    end = next(record for record in heard.records if record.getMessage().strip().startswith("↩"))
    return {
        f"{name}.{field}": type(getattr(record, field, None)).__name__
        for name, record in (("start", start), ("end", end))
        for field in ("punctuality", "duration", "docket.name", "docket.worker", "docket.task", "docket.key")
    } | {"level": start.levelname, "logger": start.name}


async def dependencies_of_the_worker(place: Place) -> dict[str, Any]:
    seen: list[str] = []

    @asynccontextmanager
    async def first() -> Any:
        seen.append("first opened")
        yield
        seen.append("first closed")

    @asynccontextmanager
    async def second() -> Any:
        seen.append("second opened")
        yield
        seen.append("second closed")

    from docket import Depends

    async def task(key: str = TaskKey()) -> None:
        seen.append("ran")

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task)()
        await run_all(docket, dependencies=[Depends(first), Depends(second)])
        wrong = await outcome(lambda: Worker(docket, dependencies=[3]))
        reserved = await outcome(lambda: Worker(docket, dependencies={"__x": Depends(first)}))
    return {"seen": seen, "not_a_dependency": wrong, "reserved_name": reserved}


async def workers_are_listed(place: Place) -> dict[str, Any]:
    async def task() -> None: ...

    async with place.docket() as docket:
        docket.register(task, names=["task", "alias"])
        async with worker_for(docket, name="entered"):
            entered = [worker.name for worker in await docket.workers()]
        async with running(docket, name="runs"):

            async def is_listed() -> bool:
                return bool(await docket.workers())

            listed = await eventually(is_listed)
            info = next(iter(await docket.workers()))
            knows = [worker.name for worker in await docket.task_workers("alias")]

        async def is_gone() -> bool:
            return not await docket.workers()

        gone = await eventually(is_gone, 12)
    return {
        "entered": entered,
        "running": listed,
        "name": info.name,
        "tasks": sorted(info.tasks),
        "knows_the_alias": knows,
        "gone": gone,
        "aware": info.last_seen.tzinfo is not None,
    }


async def run_until_finished_waits_for_future_work(place: Place) -> dict[str, Any]:
    ran: list[str] = []

    async def task(name: str) -> None:
        ran.append(name)

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task, when=now() + timedelta(milliseconds=300))("later")
        await docket.add(task)("now")
        ended = await run_all(docket)
    return {"ended": ended, "ran": ran}


async def cancelling_the_run(place: Place) -> dict[str, Any]:
    """Cancelling a run is a graceful stop, and the run returns."""
    seen: dict[str, Any] = {}

    async def task() -> None: ...

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task, when=later())()
        for name in ("run_forever", "run_until_finished", "run_at_most"):
            async with worker_for(docket) as worker:
                args = [{"nothing": 1}] if name == "run_at_most" else []
                run = asyncio.ensure_future(getattr(worker, name)(*args))
                await asyncio.sleep(0.3)
                run.cancel()
                _, pending = await asyncio.wait([run], timeout=8)
                seen[name] = "goes on" if pending else "cancelled" if run.cancelled() else "returns"
    return seen


async def names_and_labels(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        worker = Worker(docket, name="w")
        default = Worker(docket)
        tasks: list[str] = []

        async def task(worker: Worker = CurrentWorker(), docket: Docket = CurrentDocket()) -> None:
            tasks.extend(sorted(task.get_name() for task in asyncio.all_tasks()))

        docket.register(task)
        await docket.add(task)()
        await run_all(docket)
    return {
        "default_name": default.name.split("#")[0] == socket.gethostname(),
        "labels": {name: str(value).replace(place.name, "<docket>") for name, value in sorted(worker.labels().items())},
        "scheduler_task": any(name == f"{place.name} - scheduler" for name in tasks),
    }


async def failure_handler(place: Place) -> dict[str, Any]:
    seen: list[str] = []

    class Handled(FailureHandler):
        async def __aenter__(self) -> Handled:
            return self

        async def __aexit__(self, *exception: object) -> None:
            return None

        async def handle_failure(self, execution: Execution, outcome: TaskOutcome) -> bool:
            seen.append(type(outcome.exception).__name__)
            return True

    async def task(handled: Handled = Handled()) -> None:
        raise KeyError("x")

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task)()
        async with running(docket):
            await eventually(lambda: bool(seen), 5)
            await asyncio.sleep(0.5)
        await execution.sync()
    return {"seen": seen, "state": execution.state.value}
