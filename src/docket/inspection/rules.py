"""Strikes and pauses, as people see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from docket.execution.context import DocketContext
from docket.strikelist import Strike
from docket.strikelist.pauses import Pause


@dataclass(frozen=True, kw_only=True, slots=True)
class StrikeView:
    """A strike in force. `id` is for `docket.strike_list.discard`. `text` is how it reads; `value`
    is for `docket.restore`, not for a display: it may have any type."""

    id: str
    function: str | None
    parameter: str | None
    operator: str
    value: Any
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """All strikes that this process applies, and all
    pauses with the number of tasks that each holds."""

    strikes: tuple[StrikeView, ...]
    # Strikes that this process cannot read: id → why.
    unreadable: Mapping[str, str]
    pauses: tuple[Pause, ...]


async def read_rules(docket: DocketContext) -> Rules:
    """The strikes that this process applies, and the pauses of the docket."""
    await docket.wait_for_strikes_loaded()
    strikes = sorted((_strike(id, strike) for id, strike in docket.strike_list.by_id.items()), key=lambda one: one.text)
    unreadable = dict(docket.strike_list.unreadable)
    return Rules(strikes=tuple(strikes), unreadable=unreadable, pauses=tuple(await docket.pauses()))


def _strike(id: str, strike: Strike) -> StrikeView:
    return StrikeView(
        id=id,
        function=strike.function,
        parameter=strike.parameter,
        operator=strike.operator.value,
        value=strike.value,
        text=strike.call_repr(),
    )
