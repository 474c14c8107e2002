"""The limits in use: who holds their slots or has used up their window, who waits, for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.docket import Docket
from docket.inspection.filters import GROUPS, TaskFilter
from docket.inspection.limits import LimitView, WindowView, read_limits, read_windows
from docket.inspection.tasks import find_page
from docket.web.page_request import PageRequest, WebPage

SIZE = 30


async def answer(page_request: PageRequest) -> Response:
    docket = page_request.docket
    try:
        slots, windows = await asyncio.gather(
            read_limits(docket, cursor=page_request.query.get("after"), size=SIZE),
            read_windows(docket, cursor=page_request.query.get("later"), size=SIZE),
        )
    except ValueError as error:
        raise HTTPException(400, str(error)) from None
    limits = await asyncio.gather(*(_value(docket, one.parameter, _keys_of(one)) for one in slots.limits))
    values = await asyncio.gather(*(_value(docket, one.parameter, _keys_in(one)) for one in windows.windows))
    return page_request.render(
        "limits.html",
        limits=list(zip(slots.limits, limits, strict=True)),
        page_of=slots,
        windows=list(zip(windows.windows, values, strict=True)),
        windows_of=windows,
        now=docket.now(),
    )


def _keys_of(limit: LimitView) -> Iterable[str]:
    return [holder.key for holder in limit.holders if holder.key] or [waiter.key for waiter in limit.waiters]


def _keys_in(window: WindowView) -> Iterable[str]:
    return [waiter.key for waiter in window.waiters] or [run.key for run in window.runs]


async def _value(docket: Docket, parameter: str | None, keys: Iterable[str]) -> str | None:
    """The argument that a limit is about. The limit has only its fingerprint; a task that holds or
    waits may show it, if the parameter is `Logged`."""
    key = next(iter(keys), None)
    if parameter is None or key is None:
        return None
    places = GROUPS["unfinished"] | GROUPS["finished"]
    found = await find_page(docket, TaskFilter(key=key, places=places))
    arguments = found.tasks[0].arguments if found.tasks else None
    return (arguments or {}).get(parameter)


PAGE = WebPage("limits", answer, "Limits")
