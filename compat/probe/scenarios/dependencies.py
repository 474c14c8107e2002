"""Behaviours declared in signatures (rows B)."""

import asyncio
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from compat.probe.place import Place, eventually, hearing, now, outcome, raised, run_all, running
from docket import (
    ConcurrencyLimit,
    Cooldown,
    Cron,
    CurrentDocket,
    CurrentExecution,
    CurrentWorker,
    Debounce,
    Depends,
    Docket,
    Execution,
    ExponentialRetry,
    Logged,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    Shared,
    TaskArgument,
    TaskKey,
    TaskLogger,
    Timeout,
    Worker,
)
from docket.dependencies import (
    AdmissionBlocked,
    Dependency,
    ForcedRetry,
    Runtime,
    TaskOutcome,
    format_duration,
    get_dependency_parameters,
    get_single_dependency_of_type,
    get_single_dependency_parameter_of_type,
    validate_dependencies,
)


async def retry_passed_by_keyword(place: Place) -> dict[str, Any]:
    """B1."""
    attempts: list[int] = []

    async def task(retry: Retry = Retry(attempts=1)) -> None:
        attempts.append(retry.attempt)
        raise ValueError("no")

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task)(retry=Retry(attempts=3))
        await run_all(docket)
        await execution.sync()
    return {"attempts": attempts, "state": execution.state.value}


async def timeout_passed_by_keyword(place: Place) -> dict[str, Any]:
    """B1."""

    async def task(timeout: Timeout = Timeout(timedelta(seconds=20))) -> None:
        await asyncio.sleep(5)

    async with place.docket() as docket:
        docket.register(task)
        execution = await docket.add(task)(timeout=Timeout(timedelta(milliseconds=100)))
        await run_all(docket)
        await execution.sync()
    return {"state": execution.state.value}


async def perpetual_passed_by_keyword(place: Place) -> dict[str, Any]:
    """B1."""
    runs: list[int] = []

    async def task(perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)
        if len(runs) == 3:
            perpetual.cancel()

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task)(perpetual=Perpetual(every=timedelta(milliseconds=10)))
        await run_all(docket)
    return {"runs": len(runs)}


async def cron_next_time(place: Place) -> dict[str, Any]:
    """B2."""
    hourly = Cron("0 * * * *")
    berlin = Cron("30 9 * * *", tz=ZoneInfo("Europe/Berlin"))
    first, second = hourly.next_time(), hourly.next_time()
    daily = berlin.next_time()
    return {
        "aware": first.tzinfo is not None,
        "minute": first.minute,
        "step": (second - first).total_seconds(),
        "zone": [daily.hour, daily.minute, str(daily.tzinfo)],
        "six_fields": await outcome(lambda: Cron("0 0 * * * *") and "works"),
        "nonsense": await outcome(lambda: Cron("never")),
    }


async def cron_is_obeyed(place: Place) -> dict[str, Any]:
    """B2: an override decides."""
    runs: list[int] = []

    class Soon(Cron):
        def next_time(self) -> datetime:
            return now() + timedelta(milliseconds=100)

    async def task(cron: Soon = Soon("0 0 1 1 *")) -> None:
        runs.append(1)
        if len(runs) == 3:
            cron.cancel()

    async with place.docket() as docket:
        docket.register(task)
        async with running(docket):
            ran = await eventually(lambda: len(runs) >= 3, 10)
    return {"ran": ran}


async def concurrency_key_outside_a_run(place: Place) -> dict[str, Any]:
    """B3."""
    limit = ConcurrencyLimit("customer", max_concurrent=1)
    return {"outside": await outcome(lambda: limit.concurrency_key)}


async def retries(place: Place) -> dict[str, Any]:
    attempts: list[int] = []

    async def task(retry: Retry = Retry(attempts=3)) -> str:
        attempts.append(retry.attempt)
        if retry.attempt < 3:
            raise ValueError("not yet")
        return "done"

    async def forced(retry: Retry = Retry(attempts=3)) -> int:
        if retry.attempt == 1:
            retry.after(timedelta(milliseconds=10))
        return retry.attempt

    async def dead(retry: ExponentialRetry = ExponentialRetry(attempts=2, minimum_delay=timedelta(0))) -> None:
        raise LookupError("gone")

    async with place.docket() as docket:
        for function in (task, forced, dead):
            docket.register(function)
        one, two, three = [await docket.add(function)() for function in (task, forced, dead)]
        await run_all(docket)
        results = [await outcome(execution.get_result()) for execution in (one, two, three)]
        await three.sync()
    outside = Retry(attempts=2)
    return {
        "attempts": attempts,
        "results": results,
        "attempt": three.attempt,
        "error": three.error,
        "outside": [await outcome(lambda: outside.after(timedelta(1))), outside.attempts, outside.delay],
        "forever": Retry.forever(timedelta(seconds=1)).attempts,
        "forced_is_a": issubclass(ForcedRetry, Exception),
    }


async def timeouts(place: Place) -> dict[str, Any]:
    async def short(timeout: Timeout = Timeout(timedelta(milliseconds=100))) -> None:
        await asyncio.sleep(10)

    async def extended(timeout: Timeout = Timeout(timedelta(milliseconds=200))) -> str:
        before = timeout.remaining()
        timeout.extend(timedelta(seconds=5))
        await asyncio.sleep(0.4)
        return "in time" if timeout.remaining() > before else "?"

    async with place.docket() as docket:
        docket.register(short)
        docket.register(extended)
        one, two = await docket.add(short)(), await docket.add(extended)()
        await run_all(docket)
        seen = {"short": await outcome(one.get_result()), "extended": await outcome(two.get_result())}
        await one.sync()
    return seen | {"state": one.state.value}


async def perpetuals(place: Place) -> dict[str, Any]:
    seen: list[Any] = []

    async def chain(number: int, perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=20))) -> None:
        seen.append(number)
        perpetual.perpetuate(number + 1)
        if number == 3:
            perpetual.cancel()

    async def failing(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=10))) -> None:
        seen.append("fails")
        if seen.count("fails") == 3:
            perpetual.cancel()
        raise ValueError("no")

    async with place.docket() as docket:
        docket.register(chain)
        docket.register(failing)
        first = await docket.add(chain, key="chain")(1)
        await run_all(docket)
        numbers, seen[:] = list(seen), []
        second = await docket.add(failing, key="failing")()
        await run_all(docket)
        await first.sync()
        await second.sync()
    return {
        "numbers": numbers,
        "state": first.state.value,
        "failures": len(seen),
        "state_of_the_failing": second.state.value,
    }


async def automatic_tasks(place: Place) -> dict[str, Any]:
    ran: list[str] = []

    async def at_once(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None:
        ran.append("at_once")

    async def by_cron(cron: Cron = Cron("0 0 1 1 *")) -> None:
        ran.append("by_cron")

    async def by_hand(perpetual: Perpetual = Perpetual(every=timedelta(hours=1))) -> None:
        ran.append("by_hand")

    async with place.docket() as docket:
        for function in (at_once, by_cron, by_hand):
            docket.register(function)
        async with running(docket):
            await eventually(lambda: "at_once" in ran)

            async def both_wait() -> bool:
                return len((await docket.snapshot()).future) == 2

            await eventually(both_wait)
            waiting = sorted(execution.key for execution in (await docket.snapshot()).future)
    return {"ran": ran, "waiting": waiting}


async def concurrency_limits(place: Place) -> dict[str, Any]:
    inside: dict[Any, int] = {}
    most: dict[Any, int] = {}

    async def occupy(name: Any) -> None:
        inside[name] = inside.get(name, 0) + 1
        most[name] = max(most.get(name, 0), inside[name])
        await asyncio.sleep(0.1)
        inside[name] -= 1

    async def annotated(customer: Annotated[int, ConcurrencyLimit(1)]) -> None:
        await occupy(f"annotated {customer}")

    async def old(customer: int, limit: ConcurrencyLimit = ConcurrencyLimit("customer", max_concurrent=2)) -> None:
        await occupy(f"old {customer}")

    async def whole(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await occupy("whole")

    async def wrong(limit: ConcurrencyLimit = ConcurrencyLimit("missing", max_concurrent=1)) -> None: ...

    async with place.docket() as docket:
        for function in (annotated, old, whole, wrong):
            docket.register(function)
        for _ in range(3):
            await docket.add(annotated)(1)
            await docket.add(old)(2)
            await docket.add(whole)()
        failing = await docket.add(wrong)()
        ended = await run_all(docket)
        await failing.sync()
    return {"ended": ended, "most": dict(sorted(most.items())), "missing_argument": failing.state.value}


async def several_concurrency_limits(place: Place) -> dict[str, Any]:
    async def task(
        customer: Annotated[int, ConcurrencyLimit(1)], region: Annotated[str, ConcurrencyLimit(2)]
    ) -> None: ...

    async with place.docket() as docket:
        try:
            docket.register(task)
            execution = await docket.add(task)(1, "eu")
            await run_all(docket)
            await execution.sync()
        except Exception as error:
            return {"registering": raised(error)}
    return {"registering": "works", "state": execution.state.value}


async def rate_limits(place: Place) -> dict[str, Any]:
    ran: list[str] = []

    async def limited(rate: RateLimit = RateLimit(2, per=timedelta(milliseconds=400))) -> None:
        ran.append("limited")

    async def dropping(rate: RateLimit = RateLimit(1, per=timedelta(seconds=30), drop=True)) -> None:
        ran.append("dropping")

    async with place.docket() as docket:
        docket.register(limited)
        docket.register(dropping)
        for _ in range(3):
            await docket.add(limited)()
        executions = [await docket.add(dropping)() for _ in range(3)]
        ended = await run_all(docket)
        for execution in executions:
            await execution.sync()
    return {
        "ended": ended,
        "limited": ran.count("limited"),
        "dropping": ran.count("dropping"),
        "states": sorted(execution.state.value for execution in executions),
    }


async def rate_limited_perpetual(place: Place) -> dict[str, Any]:
    """A chain whose limit drops a run: does it live?"""
    ran: list[int] = []

    async def chain(
        perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=50)),
        rate: RateLimit = RateLimit(1, per=timedelta(milliseconds=600), drop=True),
    ) -> None:
        ran.append(1)

    async with place.docket() as docket:
        docket.register(chain)
        await docket.add(chain, key="chain")()
        async with running(docket):
            lives = await eventually(lambda: len(ran) >= 2, 5)
    return {"lives": lives}


async def cooldowns_and_debounces(place: Place) -> dict[str, Any]:
    ran: list[Any] = []

    async def cool(number: int, cooldown: Cooldown = Cooldown(timedelta(seconds=20))) -> None:
        ran.append("cool")

    async def settle(number: int, debounce: Debounce = Debounce(timedelta(milliseconds=300))) -> None:
        ran.append(f"settle {number}")

    async def per(customer: Annotated[int, Cooldown(timedelta(seconds=20))]) -> None:
        ran.append(f"per {customer}")

    async with place.docket() as docket:
        for function in (cool, settle, per):
            docket.register(function)
        for number in range(3):
            await docket.add(cool)(number)
            await docket.add(settle)(number)
            await docket.add(per)(number % 2)
        ended = await run_all(docket)
    return {
        "ended": ended,
        "cool": ran.count("cool"),
        "settle": len([each for each in ran if str(each).startswith("settle")]),
        "per": sorted(each for each in ran if str(each).startswith("per")),
    }


async def injected_values(place: Place) -> dict[str, Any]:
    seen: list[str] = []

    @asynccontextmanager
    async def connection() -> Any:
        seen.append("opened")
        yield "connection"
        seen.append("closed")

    def nested(link: str = Depends(connection), customer: int = TaskArgument()) -> str:
        return f"{link} of {customer}"

    async def shared() -> list[int]:
        seen.append("shared made")
        return []

    async def task(
        customer: int,
        docket: Docket = CurrentDocket(),
        worker: Worker = CurrentWorker(),
        execution: Execution = CurrentExecution(),
        key: str = TaskKey(),
        logger: Any = TaskLogger(),
        progress: Any = Progress(),
        nested_value: str = Depends(nested),
        pool: list[int] = Shared(shared),
    ) -> list[Any]:
        pool.append(1)
        await progress.set_total(7)
        return [
            docket.name == place.name,
            worker.docket is docket,
            execution.key == key,
            logger.logger.name,
            sorted(logger.extra),
            progress.total,
            nested_value,
            len(pool),
        ]

    async def broken_dependency() -> None:
        raise ValueError("broken")

    async def failing(value: None = Depends(broken_dependency)) -> None: ...

    async with place.docket() as docket:
        docket.register(task)
        docket.register(failing)
        one = await docket.add(task, key="one")(5)
        await run_all(docket)
        two = await docket.add(task, key="two")(5, nested_value="given")
        three = await docket.add(failing)()
        await run_all(docket)
        results = [await one.get_result(), await two.get_result()]
        try:
            await three.get_result()
        except BaseExceptionGroup as error:
            group = [type(error).__name__, [type(each).__name__ for each in error.exceptions]]
        except Exception as error:
            group = [type(error).__name__]
    return {"results": results, "seen": sorted(seen), "failing": group}


async def admission_of_ones_own(place: Place) -> dict[str, Any]:
    ran: list[int] = []
    asked: list[int] = []

    class Gate(Dependency[Any]):
        async def __aenter__(self) -> "Gate":
            asked.append(1)
            if len(asked) == 1:
                raise AdmissionBlocked(self.execution.get(), "closed", retry_delay=timedelta(milliseconds=100))
            return self

        async def __aexit__(self, *exception: object) -> None:
            return None

    class Doubled(Runtime):
        async def __aenter__(self) -> "Doubled":
            return self

        async def __aexit__(self, *exception: object) -> None:
            return None

        async def run(self, execution: Execution, function: Any, args: Any, kwargs: Any) -> Any:
            await function(*args, **kwargs)
            return await function(*args, **kwargs)

    async def gated(gate: Any = Gate()) -> None:
        ran.append(1)

    async def doubled(runtime: Doubled = Doubled()) -> int:
        ran.append(2)
        return ran.count(2)

    async with place.docket() as docket:
        docket.register(gated)
        docket.register(doubled)
        await docket.add(gated)()
        execution = await docket.add(doubled)()
        await run_all(docket)
        result = await outcome(execution.get_result())
    return {"asked": len(asked), "gated": ran.count(1), "doubled": ran.count(2), "result": result}


async def helpers(place: Place) -> dict[str, Any]:
    async def task(number: int, retry: Retry = Retry(attempts=3)) -> None: ...

    async def twice(one: Retry = Retry(), two: Retry = Retry()) -> None: ...

    async with place.docket() as docket:
        registering = await outcome(lambda: docket.register(twice))
    found = get_single_dependency_parameter_of_type(task, Retry)
    return {
        "parameters": sorted(get_dependency_parameters(task)),
        "single": found.attempts if found else None,
        "single_of": get_single_dependency_of_type({"a": Retry(attempts=4)}, Retry).attempts,
        "validate": await outcome(lambda: validate_dependencies(twice)),
        "registering": registering,
        "durations": [format_duration(seconds) for seconds in (0.0000015, 0.0123, 1.5, 75.0, 7200.0)],
        "outcome": repr(TaskOutcome(timedelta(seconds=1), result=3)),
    }


async def logged_arguments(place: Place) -> dict[str, Any]:
    async def task(
        secret: str,
        shown: Annotated[str, Logged],
        sized: Annotated[list[int], Logged(length_only=True)],
        mapping: Annotated[dict[str, int], Logged(length_only=True)],
        pair: Annotated[tuple[int, int], Logged(length_only=True)],
    ) -> None: ...

    with hearing() as heard:
        async with place.docket() as docket:
            docket.register(task)
            execution = await docket.add(task, key="k")("s", "visible", [1, 2, 3], {"a": 1}, (1, 2))
            await run_all(docket)
    return {"call_repr": execution.call_repr(), "logged": heard.has("↪")}
