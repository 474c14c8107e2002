"""The functions of a docket, and one of them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.inspection.functions import FunctionView, read_function, read_functions
from docket.inspection.statistics import read_statistics
from docket.web.charts import Bars, Series, bars, histogram_chart
from docket.web.page_request import PageRequest, WebPage

from .formats import clock_ticks, heat_of, shown_minutes

HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class FunctionRow:
    view: FunctionView
    spark: Bars


async def answer(page_request: PageRequest) -> Response:
    name = page_request.query.get("name")
    if name is not None:
        return await _answer_one(page_request, name)
    views = await read_functions(page_request.docket, length=HOUR)
    minutes = shown_minutes([sum(ended) for ended in zip(*(view.ended for view in views), strict=True)])
    rows = [
        FunctionRow(view, _spark(view, minutes))
        for view in sorted(views, key=lambda view: (-view.stats.ended, view.name))
    ]
    return page_request.render("functions.html", rows=rows, minutes=minutes, now=page_request.docket.now())


async def _answer_one(page_request: PageRequest, name: str) -> Response:
    docket = page_request.docket
    view, stats = await asyncio.gather(
        read_function(docket, name, length=HOUR), read_statistics(docket, name, HOUR, None)
    )
    if view is None:
        raise HTTPException(
            404, f"No worker knows the function {name!r}, and nothing of it has ended in the last hour."
        )
    moments = [stats.until - timedelta(minutes=i) for i in range(len(view.ended), 0, -1)]
    letters = await docket.dead.kinds(function=name)
    context: dict[str, Any] = {
        "view": view,
        "chart": _chart(view),
        "ticks": clock_ticks(moments),
        "run_time": histogram_chart(view.stats.run_time),
        "waiting_time": histogram_chart(view.stats.waiting_time),
        "waiting": heat_of(stats.periods, moments, lambda counts: counts.waiting_time),
        "running": heat_of(stats.periods, moments, lambda counts: counts.run_time),
        "kinds": letters,
        "now": docket.now(),
    }
    return page_request.render("function.html", **context)


def _spark(view: FunctionView, minutes: int) -> Bars:
    good = [float(ended - failed) for ended, failed in zip(view.ended, view.failed, strict=True)]
    return bars((Series("bad", view.failed), Series("out", good)), minutes)


def _chart(view: FunctionView) -> Bars:
    good = [float(ended - failed) for ended, failed in zip(view.ended, view.failed, strict=True)]
    words = [f"{ended:,} ended, {failed:,} went wrong" for ended, failed in zip(view.ended, view.failed, strict=True)]
    return bars((Series("bad", view.failed), Series("out", good)), len(view.ended), words)


PAGE = WebPage("functions", answer, "Functions")
