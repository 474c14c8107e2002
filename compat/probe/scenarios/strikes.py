"""Strikes, the strike list by itself, agendas and the assertions for tests (rows C5 and E)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from compat.probe.place import Place, eventually, hearing, later, outcome, run_all
from docket import Agenda, StrikeList, testing
from docket.strikelist import Operator, Restore, Strike


async def _task(customer: str = "ada", number: int = 1) -> None: ...


async def _other(customer: str = "ada") -> None: ...


async def what_is_blocked(place: Place) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    cases: dict[str, tuple[Any, ...]] = {
        "function": (_task,),
        "name": ("_task",),
        "parameter": (None, "customer", "==", "ada"),
        "both": (_task, "customer", "==", "ada"),
        "empty_function": ("", "customer", "==", "ada"),
        "empty_parameter": (_task, ""),
        "greater": (_task, "number", ">", 0),
        "not_equal": (_task, "number", "!=", 1),
        "between": (_task, "number", "between", (0, 2)),
        "incomparable": (_task, "number", ">", "text"),
        "operator": (_task, "number", Operator.LESS_THAN, 2),
        "wrong_operator": (_task, "number", "~", 2),
        "nothing": (),
    }
    for name, args in cases.items():
        async with place.docket(name=f"{place.name}-{name}") as docket:
            docket.register(_task)
            docket.register(_other)
            striking = await outcome(docket.strike(*args))
            if striking is not None:
                seen[name] = striking
                continue
            task = await docket.add(_task, when=later())("ada", number=1)
            other = await docket.add(_other, when=later())("ada")
            await docket.restore(*args)
            after = await docket.add(_task, when=later())("ada", number=1)
            seen[name] = [execution.disposition.name for execution in (task, other, after)]
    return seen


async def strikes_reach_others(place: Place) -> dict[str, Any]:
    async with place.docket() as one, place.docket() as two:
        one.register(_task)
        two.register(_task)
        await one.strike(_task)

        async def is_struck() -> bool:
            return (await two.add(_task, when=later())()).disposition.name == "STRUCK"

        reached = await eventually(is_struck)
        async with place.docket() as three:
            three.register(_task)
            await three.wait_for_strikes_loaded()
            fresh = await three.add(_task, when=later())()
        await one.restore(_task)
    return {"reached": reached, "a_new_docket": fresh.disposition.name}


async def views(place: Place) -> dict[str, Any]:
    """E1."""
    async with place.docket() as docket:
        docket.register(_task)
        docket.register(_other)
        await docket.strike(_task)
        await docket.strike(_other, "customer", "==", "ada")
        await docket.strike(None, "number", ">", 5)
        await docket.wait_for_strikes_loaded()
        tasks = _shown(docket.strike_list.task_strikes)
        parameters = _shown(docket.strike_list.parameter_strikes)
        await docket.restore(_task)
        await docket.restore(_other, "customer", "==", "ada")
        await docket.restore(None, "number", ">", 5)
        left = [_shown(docket.strike_list.task_strikes), _shown(docket.strike_list.parameter_strikes)]
    return {"tasks": tasks, "parameters": parameters, "left": left}


def _shown(value: Any) -> Any:
    if isinstance(value, set | frozenset | list):
        return sorted([[str(getattr(operator, "value", operator)), operand] for operator, operand in value], key=repr)
    if hasattr(value, "items"):
        return {key: _shown(each) for key, each in value.items()}
    return repr(value)


async def alone(place: Place) -> dict[str, Any]:
    """A strike list without a docket, and one without a server."""
    local = StrikeList()
    local.update(Strike("_task", None, Operator.EQUAL, None))
    local.update(Strike(None, "customer", Operator.EQUAL, "ada"))
    seen: dict[str, Any] = {
        "parameters": local.is_stricken({"customer": "ada"}),
        "other_parameters": local.is_stricken({"customer": "bob"}),
    }
    local.update(Restore(None, "customer", Operator.EQUAL, "ada"))
    seen["restored"] = local.is_stricken({"customer": "ada"})
    async with place.docket() as docket:
        docket.register(_task)
        await docket.strike(None, "customer", "==", "ada")
    async with StrikeList(url=place.url, name=place.name) as connected:
        await connected.wait_for_strikes_loaded()
        seen["connected"] = connected.is_stricken({"customer": "ada"})
        await connected.strike(parameter="customer", operator="==", value="bob")
        seen["own"] = await eventually(lambda: connected.is_stricken({"customer": "bob"}), 3)
    seen["operators"] = {operator.name: operator.value for operator in Operator}
    return seen


async def conditions(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        docket.register(_task)

        def is_ada(execution: Any) -> bool:
            return execution.get_argument("customer") == "ada"

        docket.strike_list.add_condition(is_ada)
        struck = await docket.add(_task, when=later())("ada")
        docket.strike_list.remove_condition(is_ada)
        free = await docket.add(_task, when=later())("ada")
    return {"struck": struck.disposition.name, "free": free.disposition.name}


async def agendas(place: Place) -> dict[str, Any]:
    agenda = Agenda()
    agenda.add(_task, key="a")("ada")
    agenda.add(_task)("bob")
    length, kinds = len(agenda), [type(item).__name__ for item in agenda]
    async with place.docket() as docket:
        docket.register(_task)
        start = later()
        executions = await agenda.scatter(docket, over=timedelta(minutes=10), start=start)
        spread = [round((execution.when - start).total_seconds()) for execution in executions]
        empty = await outcome(Agenda().scatter(docket, over=timedelta(minutes=1)))
        negative = await outcome(agenda.scatter(docket, over=timedelta(minutes=-1)))
    agenda.clear()
    return {
        "length": length,
        "items": kinds,
        "spread": spread,
        "keys": executions[0].key,
        "empty": empty,
        "negative": negative,
        "cleared": len(agenda),
    }


async def assertions(place: Place) -> dict[str, Any]:
    async with place.docket() as docket:
        docket.register(_task)
        await testing.assert_no_tasks(docket)
        await docket.add(_task, when=later(), key="k")("ada", number=3)
        return {
            "scheduled": await outcome(testing.assert_task_scheduled(docket, _task, args=("ada",))),
            "by_key": await outcome(testing.assert_task_scheduled(docket, "_task", key="k")),
            "wrong_args": await outcome(testing.assert_task_scheduled(docket, _task, args=("bob",))),
            "wrong_kwargs": await outcome(testing.assert_task_scheduled(docket, _task, kwargs={"number": 4})),
            "not_scheduled": await outcome(testing.assert_task_not_scheduled(docket, _task)),
            "count": await outcome(testing.assert_task_count(docket, _task, count=1)),
            "wrong_count": await outcome(testing.assert_task_count(docket, count=2)),
            "no_tasks": await outcome(testing.assert_no_tasks(docket)),
        }


async def built_in_tasks(place: Place) -> dict[str, Any]:
    """G6."""
    with hearing() as heard:
        async with place.docket() as docket:
            await docket.add("trace", key="t")("hello there")
            await docket.add("sleep", key="s")(0.01)
            failing = await docket.add("fail", key="f")("on purpose")
            await run_all(docket)
            await failing.sync()
    said = heard.lines("docket")
    return {
        "trace": any("hello there" in line for line in said),
        "sleep": [line for line in said if line.startswith("Sleeping")],
        "fail": failing.state.value,
        "fail_says": "on purpose" in (failing.error or ""),
    }
