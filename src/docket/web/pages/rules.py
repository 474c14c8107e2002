"""The rules of operators: pauses and strikes."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from docket.inspection.functions import read_functions
from docket.inspection.rules import read_rules
from docket.web.page_request import PageRequest, WebPage


async def answer(page_request: PageRequest) -> Response:
    rules, functions = await asyncio.gather(read_rules(page_request.docket), read_functions(page_request.docket))
    names = sorted(view.name for view in functions)
    # A strike is lifted by its id: its value may have any type, which a form cannot carry.
    ids = {strike.call_repr(): id for id, strike in page_request.docket.strike_list.by_id.items()}
    return page_request.render("rules.html", rules=rules, ids=ids, names=names, now=page_request.docket.now())


PAGE = WebPage("rules", answer, "Pauses and strikes")
