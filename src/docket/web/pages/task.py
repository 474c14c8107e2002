"""One task: its life as a time-line, and why it does not run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead import Letter
from docket.docket import Docket
from docket.inspection.details import TaskDetails, read_details
from docket.inspection.reasons import Reason
from docket.model.states import ExecutionState
from docket.web.page import Page
from docket.web.visit import Visit

from .time_line import Event, time_line
from .traces import trace_id

_WAITING = (ExecutionState.SCHEDULED, ExecutionState.QUEUED)


@dataclass(frozen=True, slots=True)
class TaskView:
    """All that the page shows. A key without a record has only a reason."""

    key: str
    details: TaskDetails | None
    letter: Letter | None
    why: Reason
    events: tuple[Event, ...]
    now: datetime

    @property
    def is_waiting(self) -> bool:
        return self.details is not None and self.details.state in _WAITING

    @property
    def is_running(self) -> bool:
        return self.details is not None and self.details.state is ExecutionState.RUNNING

    @property
    def trace_id(self) -> str | None:
        return trace_id(self.letter.trace) if self.letter is not None else None


async def answer(visit: Visit) -> Response:
    context = await _context(visit)
    status = 200 if context["task"].details or context["task"].letter else 404
    return visit.render("task.html", status=status, **context)


async def _context(visit: Visit) -> dict[str, Any]:
    key = visit.query.get("key")
    if key is None:
        raise HTTPException(404, "The address has no key of a task.")
    return {"task": await read_task(visit.docket, key)}


async def read_task(docket: Docket, key: str) -> TaskView:
    details, letter = await asyncio.gather(read_details(docket, key), docket.dead.get(key))
    reason = details.why if details is not None else await docket.why(key)
    now = reason.taken
    return TaskView(key, details, letter, reason, time_line(details, letter, now), now)


PAGE = Page("task", answer)
