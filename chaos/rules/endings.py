"""Every task that was accepted ends, as it should, by a run that counts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from chaos.histories import Event
from chaos.model import Model, Request
from chaos.work import BY_FUNCTION, ENDLESS, NAMING
from chaos.work.base import CANCELLED, COMPLETED, FAILED
from chaos.work.changes import strikable
from docket.model.bounds import MAX_LOSSES

from .base import Violation

# A fail-over may forget a claim that was made this long before.
FORGOTTEN_SECONDS = 30.0


def nothing_acknowledged_is_lost(model: Model) -> Iterable[Violation]:
    """Each accepted task has a finished record after the
    drain, of this request or of one that replaced it."""
    end = model.events[-1].at if model.events else 0.0
    unfinished = {event["key"]: event for event in model.of_kind("unfinished")}
    for key, requests in model.scheduling.items():
        accepted = [request for request in requests if request.accepted]
        if not accepted or key in ENDLESS:
            continue
        if key in unfinished:
            yield Violation(f"{key} is still {unfinished[key]['state']} after the drain", end, key)
        elif key not in model.records:
            yield Violation(f"{key} was accepted and has no record", end, key)
        else:
            yield from _of_the_last_request(model.records[key], requests)
    for key in unfinished.keys() - model.scheduling.keys():
        yield Violation(f"{key} is still {unfinished[key]['state']} after the drain", end, key)


def _of_the_last_request(record: Event, requests: list[Request]) -> Iterable[Violation]:
    """The record is of the last accepted request, or of one after it whose answer was lost.
    Requests of one key follow each other."""
    last = max(i for i, request in enumerate(requests) if request.accepted)
    possible = [request.event["token"] for request in requests[last:] if request.may_count]
    if record["token"] not in possible:
        text = f"{record['key']} ended as the task of {record['token']}, not of {' or '.join(possible)}"
        yield Violation(text, requests[last].answered_at, record["key"])


def every_task_ends_as_it_should(model: Model) -> Iterable[Violation]:
    """Completed, failed or cancelled: each only where the work, a cancel or a strike allows it."""
    args = {r.event["token"]: r.event["args"] for requests in model.scheduling.values() for r in requests}
    for key, record in model.records.items():
        work = BY_FUNCTION.get(record["function"])
        if work is None or key in ENDLESS or record["token"] not in args:
            continue
        allowed = work.endings(record["function"], args[record["token"]])
        if record["buried"]:
            # The next rule decides about it.
            allowed = {*allowed, FAILED}
        if key in model.cancels or record["function"] == strikable.__name__:
            allowed = {*allowed, CANCELLED}
        if record["state"] not in allowed:
            text = f"{key} ({record['function']}) ended as {record['state']}: {record['error']}"
            yield Violation(text, _last_at(model, key), key)


def an_innocent_task_is_never_buried(model: Model) -> Iterable[Violation]:
    """Only a task that kills its process becomes a dead letter, and garbage. One exception cannot
    be told from it: a task whose worker was lost three times, the last time while it ran alone."""
    for event in model.of_kind("buried"):
        record = model.records.get(event["key"])
        function = record["function"] if record is not None else ""
        work = BY_FUNCTION.get(function)
        if work is None or FAILED in work.endings(function, (0,)) or _looks_guilty(model, event["key"]):
            continue
        if record is not None:
            yield Violation(f"{event['key']} ({function}) is buried", _last_at(model, event["key"]), event["key"])


def _looks_guilty(model: Model, key: str) -> bool:
    """Whether its last run was the only one of a process
    that was harmed, after two earlier losses."""
    claims = [event for event in model.states_by_key.get(key, []) if event["state"] == "running"]
    runs = model.runs_by_key.get(key, [])
    if max(len(claims), len(runs)) < MAX_LOSSES:
        return False
    last = runs[-1] if runs else None
    if last is not None and (not claims or last.at >= claims[-1].at):
        process, claimed_at, began_at = last.process, last.claimed_at, last.at
    else:
        # The worker was lost before the body began: the child was still starting.
        last, claimed_at, began_at = None, claims[-1].at, claims[-1].at
        process = _runs_alone_in(model, key, claimed_at)
    harmed = [i.begin for i in model.interruptions_of(process) if i.explains(claimed_at, math.inf)]
    neighbours = [run for run in model.runs if run.process == process and run is not last]
    return any(not any(run.at < at < run.until for run in neighbours) for at in harmed if at >= began_at)


def _runs_alone_in(model: Model, key: str, claimed_at: float) -> str:
    """The process that said, after that claim, that this task runs alone in it."""
    said = (event for event in model.of_kind("log") if event.at >= claimed_at)
    return next((event.process for event in said if event["text"].startswith(f"task {key!r} was lost with")), "")


def nothing_is_recorded_as_done_that_did_not_run(model: Model) -> Iterable[Violation]:
    """A completed record names a run that ended well, and its result is that run's."""
    for key, record in model.records.items():
        if record["state"] != COMPLETED:
            continue
        # After a fail-over two runs may have the same epoch.
        runs = [run for run in model.runs_by_key.get(key, []) if run.epoch == record["epoch"]]
        good = [run.event["run"] for run in runs if run.how == "ok"]
        if not good:
            seen = f"that run ended: {runs[0].how}" if runs else "no such run began"
            yield Violation(f"{key} is completed by run {record['epoch']}; {seen}", _last_at(model, key), key)
        elif record["function"] in NAMING and record.get("result") not in good:
            text = f"{key} has the result of {record.get('result')}; the accepted run is {good[0]}"
            yield Violation(text, runs[0].at, key)


def no_stale_write_is_accepted(model: Model) -> Iterable[Violation]:
    """The run that a record names is the last one that the server gave out for that key."""
    for key, record in model.records.items():
        runs = model.runs_by_key.get(key, [])
        if not runs or record["state"] not in (COMPLETED, FAILED) or record["epoch"] >= runs[-1].epoch:
            continue
        if not model.may_be_forgotten(runs[-1].claimed_at, runs[-1].at + FORGOTTEN_SECONDS):
            text = f"{key}: run {record['epoch']} was accepted after run {runs[-1].epoch} had begun"
            yield Violation(text, runs[-1].at, key, tuple({run.process for run in runs}))


def _last_at(model: Model, key: str) -> float:
    runs = model.runs_by_key.get(key)
    if runs:
        return runs[-1].at
    requests = model.scheduling.get(key)
    return requests[-1].event.at if requests else model.events[-1].at
