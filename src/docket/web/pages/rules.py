"""The rules of operators: pauses and strikes."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from docket.inspection.functions import read_functions
from docket.inspection.rules import read_rules
from docket.web.page import Page
from docket.web.visit import Visit


async def answer(visit: Visit) -> Response:
    rules, functions = await asyncio.gather(read_rules(visit.docket), read_functions(visit.docket))
    names = sorted(view.name for view in functions)
    # A strike is lifted by its id: its value may have any type, which a form cannot carry.
    ids = {strike.call_repr(): id for id, strike in visit.docket.strike_list.by_id.items()}
    return visit.render("rules.html", rules=rules, ids=ids, names=names, now=visit.docket.now())


PAGE = Page("rules", answer, "Pauses and strikes")
