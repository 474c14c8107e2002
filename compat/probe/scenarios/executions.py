"""Scheduling, executions, events, progress and results (rows C and D)."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from datetime import timedelta
from typing import Any

from compat.probe.place import Place, eventually, later, now, outcome, run_all, running
from docket import CurrentExecution, Docket, Execution, ExecutionState, Perpetual, Progress, Retry
from docket.execution import ExecutionProgress


async def _task(number: int = 0, word: str = "x") -> str:
    return f"{number} {word}"


async def _failing() -> None:
    raise LookupError("not here")


async def _silent() -> None: ...


async def _slow() -> str:
    await asyncio.sleep(0.5)
    return "slow"


async def calls_again(place: Place) -> dict[str, Any]:
    """C1: sending a call twice."""
    async with place.docket() as docket:
        docket.register(_task)
        call = docket.call(_task, when=later())(1)
        frozen = await outcome(lambda: setattr(call, "key", "other"))
        first = (await docket.add_many([call]))[0].disposition
        second = (await docket.add_many([call]))[0].disposition
        other = dataclasses.replace(call, key="taken")
        taken = await docket.add(_task, when=later(), key="taken")(2)
        third = (await docket.add_many([other]))[0].disposition
        found = await docket.get_execution("taken")
        total = (await docket.snapshot()).total_tasks
    return {
        "frozen": frozen,
        "dispositions": [each.name for each in (first, second, third)],
        "kept": list(found.args) if found else None,
        "first_of_the_key": taken.disposition.name,
        "total": total,
    }


async def batches(place: Place) -> dict[str, Any]:
    """C2 and the rest of add_many and replace_many."""
    async with place.docket() as docket:
        docket.register(_task)
        added = await docket.add_many([docket.call(_task, when=later(), key="same")(n) for n in range(3)])
        kept = await docket.get_execution("same")
        replaced = await docket.replace_many([docket.call(_task, when=later(), key="same")(n) for n in range(5, 8)])
        last = await docket.get_execution("same")
        bad = await outcome(docket.add_many([], chunk_size=0))
        single = await docket.add_many([docket.call(_task)(n) for n in range(3)], chunk_size=None)
        unserialisable = await outcome(docket.add_many([docket.call(_task)(_Secret()), docket.call(_task)(1)]))
    return {
        "added": [each.disposition.name for each in added],
        "kept": list(kept.args) if kept else None,
        "replaced": [each.disposition.name for each in replaced],
        "last": list(last.args) if last else None,
        "chunk_size_0": bad,
        "one_pipeline": len(single),
        "unserialisable": unserialisable
        if isinstance(unserialisable, str)
        else [each.disposition.name for each in unserialisable],
    }


class _Secret:
    def __reduce__(self) -> Any:
        raise TypeError("this cannot be stored")


async def unknown_names(place: Place) -> dict[str, Any]:
    """C3."""
    async with place.docket() as docket:
        docket.register(_task, names=["elsewhere"])
        await docket.add("elsewhere", key="k", when=later())(1)
    async with place.docket() as docket:
        found = await docket.get_execution("k")
        adding = await outcome(lambda: docket.add("nowhere"))
        calling = await outcome(lambda: docket.call("nowhere"))
        missing = await docket.get_execution("no such key")
    assert found is not None
    return {
        "name": found.function.__name__,
        "function_name": found.function_name,
        "args": list(found.args),
        "adding": adding,
        "calling": calling,
        "missing": missing,
    }


async def read_only_attributes(place: Place) -> dict[str, Any]:
    """C4."""
    async with place.docket() as docket:
        docket.register(_task)
        execution = await docket.add(_task, when=later())()
    seen = {
        name: await outcome(lambda name=name: setattr(execution, name, "x"))
        for name in ("docket", "function", "function_name", "args", "kwargs", "key")
    }
    execution.note = "clients set their own"
    return seen


async def states(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        for function in (_task, _failing, _silent):
            docket.register(function)
        future = await docket.add(_task, when=later(), key="future")(1)
        queued = await docket.add(_task, key="queued")(1)
        failing = await docket.add(_failing, key="failing")()
        fresh = [future.state.value, queued.state.value, failing.state.value]
        await docket.cancel("future")
        await run_all(docket)
        for execution in (future, queued, failing):
            await execution.sync()
        ended = [future.state.value, queued.state.value, failing.state.value]
        again = await docket.add(_task, key="queued")(2)
        await run_all(docket)
        result = await outcome(again.get_result())
    return {
        "fresh": fresh,
        "ended": ended,
        "error": failing.error,
        "cancelled_result": await _result_of_a_cancelled(place),
        "again": again.disposition.name,
        "result": result,
        "times": [queued.started_at is not None, queued.completed_at is not None, queued.worker is not None],
        "attempt": queued.attempt,
        "result_key": queued.result_key,
    }


async def _result_of_a_cancelled(place: Place) -> Any:
    async with place.docket(name=f"{place.name}-2") as docket:
        docket.register(_task)
        execution = await docket.add(_task, when=later())()
        await docket.cancel(execution.key)
        return await outcome(execution.get_result(timeout=timedelta(seconds=2)))


async def keys(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        docket.register(_task)
        first = await docket.add(_task, when=later(), key="k")(1)
        second = await docket.add(_task, when=now(), key="k")(2)
        third = await docket.replace(_task, when=later(), key="k")(3)
        found = await docket.get_execution("k")
        fresh = await docket.add(_task, when=later())()
        removed = await docket.clear()
        cancelled = await docket.get_execution("k")
        unknown = await outcome(docket.cancel("never seen"))
    return {
        "dispositions": [each.disposition.name for each in (first, second, third)],
        "found": [list(found.args), found.disposition.name] if found else None,
        "uuid": [len(fresh.key), fresh.key[14]],
        "removed": removed,
        "after_clear": cancelled.state.value if cancelled else None,
        "cancel_unknown": unknown,
    }


async def places(place: Place) -> dict[str, Any]:
    """Names of the docket's own keys that are public."""
    async with place.docket() as docket:
        seen = {
            name: str(getattr(docket, name)).replace(place.name, "<name>")
            for name in ("prefix", "queue_key", "stream_key", "results_collection", "worker_group_name", "workers_set")
        }
        seen |= {
            f"{name}()": getattr(docket, name)("x").replace(place.name, "<name>")
            for name in ("key", "runs_key", "cancel_channel", "worker_tasks_set", "task_workers_set")
        }
        seen["labels"] = {key: value.replace(place.name, "<name>") for key, value in docket.labels().items()}
        async with docket.redis() as redis:
            await redis.set(docket.key("mine"), "x")
            seen["client_gives"] = type(await redis.get(docket.key("mine"))).__name__
        seen["result_storage"] = docket.result_storage is not None
        seen["standard_tasks"] = sorted(docket.tasks)
    return seen


async def life_of_a_docket(place: Place) -> dict[str, Any]:
    async def use(docket: Docket) -> Any:
        async with docket:
            return "works"

    docket = place.docket()
    first, second = await outcome(use(docket)), await outcome(use(docket))
    async with docket:
        twice = await outcome(docket.__aenter__())
    return {"first": first, "again": second, "twice_at_once": twice, "fields": _fields()}


def _fields() -> list[str]:
    docket = Docket()
    return [docket.name, docket.url, str(docket.heartbeat_interval), str(docket.missed_heartbeats)]


async def events_of_a_task(place: Place) -> dict[str, Any]:
    async def task(progress: Any = Progress()) -> None:
        await progress.set_total(2)
        await progress.increment()
        await progress.set_message("half")
        await progress.increment()

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task, when=now() + timedelta(milliseconds=300))()
        events = await _events(docket, execution, 10)
    return {
        "states": [_text(event["state"]) for event in events if event["type"] == "state"],
        "states_are": isinstance(events[0]["state"], ExecutionState),
        "progress": [
            [event["current"], event["total"], event["message"]] for event in events if event["type"] == "progress"
        ][-1],
        "fields": sorted({field for event in events if event["type"] == "state" for field in event}),
        "fields_of_progress": sorted({field for event in events if event["type"] == "progress" for field in event}),
    }


async def _events(docket: Docket, execution: Execution, seconds: float, endings: int = 1) -> list[Any]:
    events: list[Any] = []
    ready = asyncio.Event()

    async def listen() -> None:
        async for event in execution.subscribe(ready=ready):
            events.append(event)
            ended = [each for each in events if _text(each.get("state")) in ("completed", "failed", "cancelled")]
            if len(ended) >= endings:
                return

    listening = asyncio.ensure_future(listen())
    await asyncio.wait_for(ready.wait(), 5)
    async with running(docket):
        await asyncio.wait([listening], timeout=seconds)
    listening.cancel()
    return events


def _text(state: Any) -> Any:
    return getattr(state, "value", state)


async def events_of_a_perpetual(place: Place) -> dict[str, Any]:
    """D1: each run ends visibly."""
    runs: list[int] = []

    async def chain(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=200))) -> int:
        runs.append(1)
        return len(runs)

    async with place.docket() as docket:
        docket.register(chain)
        execution = await docket.add(chain, key="chain")()
        waiting = asyncio.ensure_future(outcome(execution.get_result(timeout=timedelta(seconds=6))))
        events = await _events(docket, execution, 6, endings=2)
        result = await waiting
        await docket.cancel("chain")
    states = [_text(event["state"]) for event in events if event["type"] == "state"]
    return {"endings": min(states.count("completed"), 2), "get_result": type(result).__name__, "first": states[:1]}


async def results(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        for function in (_task, _failing, _silent, _slow):
            docket.register(function)
        value, failed, nothing = [await docket.add(function)() for function in (_task, _failing, _silent)]
        await run_all(docket)
        slow = await docket.add(_slow)()
        early = await outcome(slow.get_result(timeout=timedelta(milliseconds=50)))
        past = await outcome(slow.get_result(deadline=now() - timedelta(seconds=1)))
        both = await outcome(slow.get_result(timeout=timedelta(seconds=1), deadline=now()))
        async with running(docket):
            waited = await outcome(slow.get_result(timeout=timedelta(seconds=10)))
        seen = {
            "value": await outcome(value.get_result(timeout=timedelta(0))),
            "failed": await outcome(failed.get_result()),
            "nothing": await outcome(nothing.get_result()),
        }
    return seen | {"early": early, "past": past, "both": both, "waited": waited}


async def result_without_a_record(place: Place) -> dict[str, Any]:
    """D2."""
    async with place.docket(execution_ttl=timedelta(0)) as docket:
        docket.register(_task)
        execution = await docket.add(_task)()
        await run_all(docket)
        try:
            return {"get_result": await execution.get_result(timeout=timedelta(milliseconds=500))}
        except TimeoutError:
            return {"get_result": "a TimeoutError"}


async def progress_of_several_handles(place: Place) -> dict[str, Any]:
    """D3."""
    seen: list[Any] = []

    async def task(execution: Execution = CurrentExecution()) -> None:
        progress = execution.progress
        await progress.set_total(10)
        await progress.increment(5)
        other = await ExecutionProgress.create(execution.docket, execution.key)
        await other.set_message("from another")
        bare = ExecutionProgress(execution.docket, execution.key)
        await bare.increment()
        await other.increment()
        await progress.increment()
        await progress.sync()
        seen.extend([progress.current, progress.total, progress.message, progress.updated_at is not None])

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task)()
        fresh = [execution.progress.current, execution.progress.total, execution.progress.message]
        await run_all(docket)
        await execution.sync()
        seen = seen or [execution.error]
        after = [execution.progress.current, execution.progress.total, execution.progress.message]
        stranger = ExecutionProgress(docket, "nobody")
        writing = await outcome(stranger.set_message("x"))
    return {"seen": seen, "fresh": fresh, "after_the_end": after, "of_an_unknown_task": writing}


async def marking_by_hand(place: Place) -> dict[str, Any]:
    """D4."""
    async with place.docket() as docket:
        docket.register(_task)
        seen: dict[str, Any] = {}
        for mark in ("mark_as_completed", "mark_as_failed", "mark_as_cancelled"):
            execution = await docket.add(_task, key=mark)()
            claimed = await execution.claim("somebody")
            running = execution.state.value
            await getattr(execution, mark)()
            await execution.sync()
            seen[mark] = [claimed, running, execution.state.value, execution.error]
    return seen


async def arguments(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        docket.register(_task)
        execution = await docket.add(_task, key="k", when=later())(3, word="y")
        return {
            "number": execution.get_argument("number"),
            "word": execution.get_argument("word"),
            "missing": await outcome(lambda: execution.get_argument("nothing")),
            "call_repr": execution.call_repr(),
            "general": sorted(execution.general_labels()),
            "specific": sorted(execution.specific_labels()),
            "superseded": await execution.is_superseded(),
            "wrong_call": _accepted(await outcome(lambda: docket.add(_task)(1, 2, 3, 4))),
        }


def _accepted(answer: Any) -> Any:
    return "accepted" if isinstance(answer, Execution) else answer


async def schedule_by_hand(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        docket.register(_task)
        execution = Execution(docket, _task, (1,), {}, "by-hand", later(), 1)
        await docket.schedule(execution)
        second = Execution(docket, _task, (2,), {}, "by-hand", later(), 1)
        answer = await second.schedule()
        third = Execution(docket, _task, (3,), {}, "by-hand", later(), 1)
        replaced = await third.schedule(replace=True)
        found = await docket.get_execution("by-hand")
    return {
        "first": execution.disposition.name,
        "second": getattr(answer, "name", answer),
        "replaced": getattr(replaced, "name", replaced),
        "args": list(found.args) if found else None,
    }


async def cancelling(place: Place) -> dict[str, Any]:
    started = asyncio.Event()

    async def swallows() -> str:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(30)
        return "swallowed"

    async def runs(retry: Retry = Retry(attempts=5)) -> None:
        started.set()
        await asyncio.sleep(30)

    async def raises_itself() -> None:
        raise asyncio.CancelledError

    seen: dict[str, Any] = {}
    async with place.docket() as docket:
        for function in (swallows, runs, raises_itself):
            docket.register(function)
        for function in (runs, swallows, raises_itself):
            started.clear()
            execution = await docket.add(function, key=function.__name__)()
            async with running(docket):
                if function is not raises_itself:
                    await asyncio.wait_for(started.wait(), 10)
                    await docket.cancel(execution.key)

                async def has_ended(execution: Execution = execution) -> bool:
                    await execution.sync()
                    return execution.state.value in ("completed", "failed", "cancelled")

                await eventually(has_ended, 8)
            seen[function.__name__] = execution.state.value
    return seen


async def replacing_a_running_task(place: Place) -> dict[str, Any]:
    started, ran = asyncio.Event(), []

    async def task(word: str) -> str:
        ran.append(word)
        started.set()
        await asyncio.sleep(0.4)
        return word

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task, key="k")("original")
        async with running(docket):
            await asyncio.wait_for(started.wait(), 10)
            replacement = await docket.replace(task, when=now(), key="k")("replacement")
            result = await outcome(replacement.get_result(timeout=timedelta(seconds=8)))
            both = await outcome(execution.get_result(timeout=timedelta(seconds=8)))
    return {"ran": ran, "result": result, "of_the_first_handle": both}


async def snapshots(place: Place) -> dict[str, Any]:
    started = asyncio.Event()

    async def occupied() -> None:
        started.set()
        await asyncio.sleep(30)

    async with place.docket() as docket:
        docket.register(occupied)
        docket.register(_task)
        await docket.add(_task, key="future", when=later())()
        await docket.add(occupied, key="runs")()
        async with running(docket, name="w"):
            await asyncio.wait_for(started.wait(), 10)
            snapshot = await docket.snapshot()
            await docket.cancel("runs")
        await docket.add(_task, key="ready")()
        second = await docket.snapshot()
    return {
        "total": snapshot.total_tasks,
        "future": [execution.key for execution in snapshot.future],
        "running": [[each.key, each.worker] for each in snapshot.running],
        "workers": [worker.name for worker in snapshot.workers],
        "a_ready_task_is_in": [
            name for name in ("future", "running") if "ready" in [each.key for each in getattr(second, name)]
        ],
        "aware": snapshot.taken.tzinfo is not None,
    }
