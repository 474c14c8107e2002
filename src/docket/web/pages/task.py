"""One task: its life as a time-line, and why it does not run."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime

from starlette.exceptions import HTTPException
from starlette.responses import Response

from docket.dead import Letter
from docket.docket import Docket
from docket.inspection.reasons import Reason
from docket.inspection.task import TaskDetails, TaskView, read_task_view, trace_id
from docket.model.states import ExecutionState
from docket.web.page import Page
from docket.web.visit import Visit

from .time_line import Event, time_line

_WAITING = (ExecutionState.SCHEDULED, ExecutionState.QUEUED)


@dataclass(frozen=True, slots=True)
class ShownTask:
    """All that the page shows. A key without a record has only a reason."""

    key: str
    view: TaskView | None
    letter: Letter | None
    why: Reason
    events: tuple[Event, ...]

    @property
    def details(self) -> TaskDetails | None:
        return self.view.details if self.view is not None else None

    @property
    def now(self) -> datetime:
        return self.why.taken

    @property
    def is_waiting(self) -> bool:
        return self.details is not None and self.details.state in _WAITING

    @property
    def is_scheduled(self) -> bool:
        return self.details is not None and self.details.state is ExecutionState.SCHEDULED

    @property
    def is_running(self) -> bool:
        return self.details is not None and self.details.state is ExecutionState.RUNNING

    @property
    def trace_id(self) -> str | None:
        if self.view is not None and self.view.trace is not None:
            return trace_id(self.view.trace)
        return trace_id(self.letter.trace) if self.letter is not None else None

    @property
    def result(self) -> str | None:
        """The value of the result, if it can be shown: as JSON."""
        found = self.view.result if self.view is not None else None
        if found is None or not found.has_value:
            return None
        return json.dumps(found.value, ensure_ascii=False, indent=2)


async def answer(visit: Visit) -> Response:
    key = visit.query.get("key")
    if key is None:
        raise HTTPException(404, "The address has no key of a task.")
    task = await read_task(visit.docket, key)
    return visit.render("task.html", status=200 if task.view or task.letter else 404, task=task)


async def read_task(docket: Docket, key: str) -> ShownTask:
    view, letter = await asyncio.gather(read_task_view(docket, key), docket.dead.get(key))
    details = view.details if view is not None else None
    reason = details.why if details is not None else await docket.why(key)
    return ShownTask(key, view, letter, reason, time_line(details, letter, reason.taken))


PAGE = Page("task", answer)
