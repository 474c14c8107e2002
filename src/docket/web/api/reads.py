"""The questions of the API. Pages ask the same functions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from docket.dead import Letter, LetterPage, Overview
from docket.docket import Docket
from docket.inspection.audit import AuditPage, read_audit
from docket.inspection.census import Census, read_census
from docket.inspection.filters import read_filter
from docket.inspection.functions import FunctionView, read_function, read_functions
from docket.inspection.history import HistoryPage, read_history_page
from docket.inspection.limits import LimitPage, WindowPage, read_limits, read_windows
from docket.inspection.reasons import Reason
from docket.inspection.rules import Rules, read_rules
from docket.inspection.schedule import Upcoming, read_upcoming
from docket.inspection.statistics import FlowPoint, Stats, read_flow
from docket.inspection.task import TaskView, read_task_view
from docket.inspection.tasks import TaskPage, find_page
from docket.inspection.workers import RunningTasks, WorkerView, read_running, read_worker_views
from docket.model.states import FAILURE_KINDS, EndingKind
from docket.web.actions.letter_actions import FILTER as LETTER_FILTER
from docket.web.inputs import Input, flag, moment, text, whole


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaling:
    """How much there is to do, and how much room there is for it.

    `waiting` are tasks that a free slot would run now. Those that wait for
    their time, for a limit, for a resume or for another release are not in it,
    since more workers would not help them. `work` is `waiting` and `running`:
    divide it by the slots of a worker to get the number of workers.
    """

    waiting: int
    running: int
    work: int
    # How long the first of the waiting tasks has been ready, in seconds.
    oldest_seconds: float
    workers: int
    # Of all workers that report them.
    slots: int
    free_slots: int


async def read_scaling(docket: Docket) -> Scaling:
    census = await read_census(docket)
    views = await read_worker_views(docket)
    reports = [view.report for view in views if view.report is not None and not view.is_stopping]
    slots = sum(report.slots for report in reports)
    return Scaling(
        waiting=census.ready,
        running=census.running,
        work=census.ready + census.running,
        oldest_seconds=census.oldest_ready_seconds or 0.0,
        workers=census.workers,
        slots=slots,
        free_slots=max(slots - sum(report.runs for report in reports), 0),
    )


Reading = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Read:
    """One question, at `GET /api/v1/{docket}/{path}`. `read` gets the docket, and the fields by
    their names; None is answered with 404."""

    path: str
    summary: str
    read: Reading
    # The type of the answer.
    answer: Any
    inputs: tuple[Input, ...] = ()
    # What there is none of, in the answer 404.
    missing: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """How a docket filled and emptied, minute by minute."""

    points: tuple[FlowPoint, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Functions:
    """All functions that live workers know, or that have statistics."""

    functions: tuple[FunctionView, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """The workers that have a lease."""

    workers: tuple[WorkerView, ...]


CURSOR = text("cursor", "The cursor of the page before.", longest=2_000)
KEY = text("key", "The key of the task.", required=True)
MINUTES = whole("minutes", "The last so many minutes; by default 60.", least=1, most=180)


def size(most: int = 500) -> Input:
    return whole("size", "About so many items on a page; by default 50.", least=1, most=most)


async def tasks(docket: Docket, *, filter: str | None = None, **page: Any) -> TaskPage:
    return await find_page(docket, read_filter(filter or ""), **page)


async def why(docket: Docket, *, key: str) -> Reason:
    return await docket.why(key)


async def flow(docket: Docket, *, minutes: int = 60, function: str | None = None) -> Flow:
    return Flow(points=await read_flow(docket, length=timedelta(minutes=minutes), function=function))


async def functions(docket: Docket, *, minutes: int = 60) -> Functions:
    return Functions(functions=await read_functions(docket, length=timedelta(minutes=minutes)))


async def function(docket: Docket, *, name: str, minutes: int = 60) -> FunctionView | None:
    return await read_function(docket, name, length=timedelta(minutes=minutes))


async def statistics(docket: Docket, **given: Any) -> Stats:
    return await docket.stats(given.pop("function", None), **given)


async def history(docket: Docket, *, ending: str | None = None, failures: bool = False, **given: Any) -> HistoryPage:
    if failures and ending is not None:
        raise ValueError("failures and ending: give one of them")
    endings = FAILURE_KINDS if failures else ending
    return await read_history_page(docket, given.pop("function", None), endings=endings, **given)


async def schedule(docket: Docket, *, hours: int = 24) -> Upcoming:
    length = timedelta(hours=hours)
    return await read_upcoming(docket, length=length, bucket=length / 96)


async def letters(docket: Docket, **given: Any) -> LetterPage:
    return await docket.dead.page(**given)


async def letters_overview(docket: Docket) -> Overview:
    return await docket.dead.overview()


async def letter(docket: Docket, *, id: int) -> Letter | None:
    return await docket.dead.get(id)


async def workers(docket: Docket) -> Workers:
    return Workers(workers=await read_worker_views(docket))


READS: tuple[Read, ...] = (
    Read("census", "How many tasks and workers there are now", read_census, Census),
    Read(
        "flow",
        "How the docket filled and emptied, minute by minute",
        flow,
        Flow,
        (MINUTES, text("function", "Only this function.")),
    ),
    Read(
        "tasks",
        "A page of tasks",
        tasks,
        TaskPage,
        (text("filter", "Words such as function:send_mail state:queued prefix:order- older:5m"), CURSOR, size()),
    ),
    Read("task", "Everything about one task", read_task_view, TaskView, (KEY,), "task"),
    Read("why", "Why a task does not run", why, Reason, (KEY,)),
    Read(
        "functions", "All functions, how they are declared and how their runs ended", functions, Functions, (MINUTES,)
    ),
    Read(
        "function",
        "One function",
        function,
        FunctionView,
        (text("name", "The name of the function.", required=True), MINUTES),
        "function",
    ),
    Read(
        "statistics",
        "How runs ended, how long they took and how long their tasks had waited",
        statistics,
        Stats,
        (
            text("function", "Only this function."),
            moment("since", "From this time; by default an hour before the end."),
            moment("until", "Until this time; by default now."),
        ),
    ),
    Read(
        "history",
        "Runs that finished lately: every failure, and some of the others, the newest first",
        history,
        HistoryPage,
        (
            text("function", "Only this function."),
            text("key", "Only the runs of this task."),
            text("ending", "Only runs that ended like this.", choices=[kind.value for kind in EndingKind]),
            flag("failures", "Only failures."),
            moment("since", "From this time; by default as far as the history goes."),
            moment("until", "Until this time; by default now."),
            CURSOR,
            size(),
        ),
    ),
    Read(
        "schedule",
        "What will run in the next hours",
        schedule,
        Upcoming,
        (whole("hours", "The next so many hours; by default 24.", least=1, most=24 * 31),),
    ),
    Read("letters", "A page of dead letters, the newest first", letters, LetterPage, (*LETTER_FILTER, CURSOR, size())),
    Read("letters/overview", "How many dead letters there are, and of which kinds", letters_overview, Overview),
    Read(
        "letter",
        "One dead letter",
        letter,
        Letter,
        (whole("id", "The id of the letter.", required=True),),
        "dead letter",
    ),
    Read("limits", "The concurrency limits in use", read_limits, LimitPage, (CURSOR, size())),
    Read(
        "windows",
        "The rate limits, cooldowns and debounces in effect",
        read_windows,
        WindowPage,
        (CURSOR, size()),
    ),
    Read("workers", "The workers, and how they are", workers, Workers),
    Read(
        "running",
        "What runs now",
        read_running,
        RunningTasks,
        (text("worker", "Only on workers of this name."),),
    ),
    Read("rules", "The strikes and the pauses", read_rules, Rules),
    Read(
        "audit",
        "Who changed what, the newest first",
        read_audit,
        AuditPage,
        (text("who", "Only changes of this person."), text("action", "Only this kind of change."), CURSOR, size()),
    ),
    Read("scaling", "Numbers for an autoscaler, such as KEDA's metrics-api", read_scaling, Scaling),
)
