"""The rules of operators: pauses and strikes."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from docket.inspection.function_views import read_functions
from docket.inspection.rule_views import read_rules
from docket.web.page import Page
from docket.web.visit import Visit


async def answer(visit: Visit) -> Response:
    rules, functions = await asyncio.gather(read_rules(visit.docket), read_functions(visit.docket))
    names = sorted(view.name for view in functions)
    return visit.render("rules.html", rules=rules, names=names, now=visit.docket.now())


PAGE = Page("rules", answer, "Pauses and strikes")
