"""Changes of the rules of operators: pauses and strikes."""

from __future__ import annotations

from typing import Any

from docket.errors import NotPaused
from docket.strikelist import Restore, Strike
from docket.web.guards import Role
from docket.web.inputs import text
from docket.web.problems import Refused

from .action import Action, ActionResult, ChangeRequest, counted
from .values import RULE, read_rule


async def pause(request: ChangeRequest, **given: Any) -> ActionResult:
    function, parameter, operator, value = read_rule(**given)
    if not given.get("function"):
        # An empty form must not hold the whole docket.
        raise ValueError("name the function, or * for all functions")
    made = await request.docket.pause(function or "*", parameter, operator, value)
    return ActionResult(sentence=f"Paused {made}.", details={"id": made.id, "pause": str(made), "held": made.held})


async def resume(request: ChangeRequest, *, id: str | None = None, **given: Any) -> ActionResult:
    docket = request.docket
    if id is None:
        if not given:
            raise ValueError("name the pause: its id, or its function and parameter")
        function, parameter, operator, value = read_rule(**given)
        held = await docket.resume(function or "*", parameter, operator, value)
    else:
        if given:
            raise ValueError("an id names the pause, so nothing else can go with it")
        found = next((pause for pause in await docket.pauses() if pause.id == id), None)
        if found is None:
            raise NotPaused(f"there is no pause {id!r}")
        held = await docket.resume(found)
    sentence = f"Resumed: {counted(held, 'task goes on', 'tasks go on')}."
    return ActionResult(sentence=sentence, count=held, details={"held": held})


async def strike(request: ChangeRequest, **given: Any) -> ActionResult:
    rule = Strike(*read_rule(**given))
    rule.check()
    await request.docket.strike(rule.function, rule.parameter, rule.operator, rule.value)
    return ActionResult(sentence=f"Struck {rule.call_repr()}.", details={"strike": rule.call_repr()})


async def restore(request: ChangeRequest, *, id: str | None = None, **given: Any) -> ActionResult:
    strikes = request.docket.strike_list
    await request.docket.wait_for_strikes_loaded()
    if id is not None:
        if given:
            raise ValueError("an id names the strike, so nothing else can go with it")
        found = strikes.by_id.get(id)
        shown = found.call_repr() if found is not None else f"strike {id}"
        if not await strikes.discard(id):
            raise _no_such_strike(f"there is no strike {id!r}")
        return ActionResult(sentence=f"Restored {shown}.", count=1, details={"strike": shown})
    rule = Restore(*read_rule(**given))
    rule.check()
    await request.docket.restore(rule.function, rule.parameter, rule.operator, rule.value)
    return ActionResult(sentence=f"Restored {rule.call_repr()}.", details={"strike": rule.call_repr()})


def _no_such_strike(detail: str) -> Refused:
    return Refused(404, "strike-not-found", "There is no such strike", detail)


_ID = text("id", "The id of the rule, instead of what it says.", longest=1_000)

RULE_ACTIONS: tuple[Action, ...] = (
    Action("pauses/add", "pause", "Hold tasks until they are resumed", Role.OPERATOR, RULE, pause),
    Action("pauses/resume", "resume", "Lift a pause: its tasks go on", Role.OPERATOR, (_ID, *RULE), resume),
    Action("strikes/add", "strike", "Cancel matching tasks instead of running them", Role.ADMIN, RULE, strike),
    Action("strikes/restore", "restore", "Lift a strike", Role.ADMIN, (_ID, *RULE), restore),
)
