"""Pauses of a docket: they hold tasks until they are resumed."""

from __future__ import annotations

from typing import Any

from docket.execution import TaskFunction
from docket.ledger.audit import audited
from docket.lifetime import DocketLifetime
from docket.registry import name_of
from docket.spans import request_span
from docket.strikelist import LiteralOperator, Operator
from docket.strikelist.instructions import PauseRule
from docket.strikelist.pauses import Pause, Pauses
from docket.strikelist.values import RuleValues

ANY = "*"


class DocketPauses(DocketLifetime):
    """The part of a docket that pauses tasks."""

    def labels(self) -> dict[str, str]:
        """The labels of metrics and spans that name this docket."""
        return {"docket.name": self.name}

    @property
    def pause_store(self) -> Pauses:
        """The pauses as they are stored."""
        return Pauses(self.ledger, RuleValues(pickled=self.pickled_strikes), self.payloads)

    async def pause(
        self,
        function: TaskFunction | str,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> Pause:
        """Holds the tasks of a function, or those with such an argument, until `resume`. `"*"` is
        every function: without a parameter, the whole docket pauses.

        Held tasks wait in order and lose nothing. Tasks that run already go on. From the return of
        this call on, workers claim no task that matches. Pausing again changes nothing. Raises
        ValueError if a name is empty, the operator is unknown or the value of `between` is not a
        pair, Unserializable if the value cannot be stored, and TooManyPauses.
        """
        rule = _rule(function, parameter, operator, value)
        async with audited(self.ledger, "pause", rule.call_repr()):
            with request_span(self, "pause", rule.labels()):
                return await self.pause_store.pause(rule)

    async def resume(
        self,
        function: TaskFunction | str | Pause,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> int:
        """Removes the pause with equal arguments, or one of `pauses()`, and lets its tasks go on in
        order. Returns how many it held.

        The first tasks go on at once; the workers let the others go on as they take them. Raises
        NotPaused, which says what is paused, if there is no such pause.
        """
        if isinstance(function, Pause):
            return await self._resume_listed(function)
        rule = _rule(function, parameter, operator, value)
        async with audited(self.ledger, "resume", rule.call_repr()) as entry:
            with request_span(self, "resume", rule.labels()):
                held = entry.count = await self.pause_store.resume(rule)
        return held

    async def _resume_listed(self, pause: Pause) -> int:
        async with audited(self.ledger, "resume", str(pause)) as entry:
            with request_span(self, "resume"):
                held = entry.count = await self.pause_store.resume_id(pause.id)
        return held

    async def pauses(self) -> list[Pause]:
        """The pauses in force and those that are being resumed, oldest first, with the number of
        tasks that each one holds."""
        return (await self.pause_store.read())[1]


def _rule(
    function: TaskFunction | str, parameter: str | None, operator: Operator | LiteralOperator, value: Any
) -> PauseRule:
    """An empty name is a mistake. It would widen the rule to the whole docket or function."""
    if function == "":
        raise ValueError(f"the name of the function is empty; {ANY!r} is every function")
    if parameter == "":
        raise ValueError("the name of the parameter is empty; without a parameter, leave it out")
    return PauseRule(_name_or_all(function), parameter, Operator.read(operator), value)


def _name_or_all(function: TaskFunction | str) -> str | None:
    if isinstance(function, str):
        return None if function == ANY else function
    return name_of(function)
