"""A producer: `python -m chaos.producer_process '<settings as JSON>'`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import sys
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from random import Random
from typing import Any

from docket import Docket, Execution, TaskCall
from docket.errors import DocketError, NotDurable, NotPaused, ServerUnreachable
from docket.worker.program import stopped_by_signals

from .broken import BUILDS
from .histories import History, real_wall
from .metric_counts import MetricCounts
from .settings import Settings
from .stalls import watch_for_stalls
from .work import FUNCTIONS, WORK, Function

# A producer that the server holds up adds no more than this many pieces of work at a time.
MOST_UNDER_WAY = 300
# While this file is in the folder, the workers cannot keep up.
BACKLOG_MARK = "backlog"
# Arguments that are longer are written as their length.
LONGEST_ARGUMENT = 200


class Requests:
    """Sends requests to a docket, and writes each into the history before it is sent and after it
    is answered."""

    def __init__(self, docket: Docket, history: History, seed: str) -> None:
        self.docket = docket
        self.random = Random(seed)
        self._history = history
        self._numbers = itertools.count(1)
        self._was_retried: dict[str, bool] = {}
        for function in FUNCTIONS:
            docket.register(function)

    def new_token(self) -> str:
        return f"{self._history.process}-{next(self._numbers)}"

    async def add(
        self, function: Function, token: str, *args: Any, when: datetime | None = None, key: str | None = None
    ) -> bool:
        key = key or token
        sent = self._schedule(self.docket.add(function, when=when, key=key)(token, *args))
        return await self._request("add", sent, **_request(function, token, args, when, key))

    async def add_with_generated_key(self, function: Function, token: str, *args: Any) -> bool:
        """docket makes up the key. It repeats such a call by itself if the answer is lost."""
        call = self.docket.call(function)(token, *args)
        sent = self._schedule(self._add_call(call))
        return await self._request("add", sent, **_request(function, token, args, None, call.key))

    async def _add_call(self, call: TaskCall) -> Execution:
        (execution,) = await self.docket.add_many([call])
        if execution.schedule_exception is not None:
            raise execution.schedule_exception
        return execution

    async def replace(self, function: Function, token: str, *args: Any, when: datetime, key: str) -> bool:
        sent = self._schedule(self.docket.replace(function, when=when, key=key)(token, *args))
        return await self._request("replace", sent, **_request(function, token, args, when, key))

    async def cancel(self, key: str) -> bool:
        return await self._request("cancel", self.docket.cancel(key), key=key)

    async def retry(self, key: str) -> bool:
        """Whether the task of that key had a dead letter, which is a task again."""
        return await self._request("retry", self._retry(key), key=key) and self._was_retried.pop(key, False)

    async def _retry(self, key: str) -> str:
        report = await self.docket.dead.retry(key=key)
        self._was_retried[key] = report.retried > 0
        return "scheduled" if report.retried else "nothing"

    async def strike(self, function: Function, parameter: str, value: Any) -> bool:
        sent = self.docket.strike(function, parameter, "==", value)
        return await self._request("strike", sent, function=function.__name__, value=value)

    async def restore(self, function: Function, parameter: str, value: Any) -> bool:
        sent = self.docket.restore(function, parameter, "==", value)
        return await self._request("restore", sent, function=function.__name__, value=value)

    async def pause(self, function: Function, parameter: str | None = None, value: Any = None) -> bool:
        sent = self.docket.pause(function, parameter, "==", value)
        return await self._request("pause", _done(sent), function=function.__name__, value=value)

    async def resume(self, function: Function, parameter: str | None = None, value: Any = None) -> bool:
        sent = self.docket.resume(function, parameter, "==", value)
        return await self._request("resume", _done(sent), function=function.__name__, value=value)

    async def resume_all(self) -> None:
        """Resumes the pauses of producers that were killed."""
        for pause in await self.docket.pauses():
            sent = _done(self.docket.resume(pause))
            await self._request("resume", sent, function=pause.function, value=pause.value)

    async def sleep(self, least: float, most: float) -> None:
        await asyncio.sleep(self.random.uniform(least, most))

    def after(self, least: float, most: float) -> datetime:
        return datetime.fromtimestamp(real_wall() + self.random.uniform(least, most), UTC)

    async def _schedule(self, sent: Awaitable[Any]) -> str:
        return (await sent).disposition.value

    async def _request(self, kind: str, sent: Awaitable[Any], **data: Any) -> bool:
        """True if the server has accepted the request."""
        number = f"{self._history.process}-{kind}-{next(self._numbers)}"
        self._history.write(kind, request=number, **data)
        try:
            answer = await sent
        except DocketError as error:
            maybe = isinstance(error, NotDurable) or (isinstance(error, ServerUnreachable) and error.maybe_stored)
            how = "unknown" if maybe or kind not in ("add", "replace") else "refused"
            self._history.write("answer", request=number, how=how, error=f"{type(error).__name__}: {error}"[:200])
            return False
        self._history.write("answer", request=number, how=answer or "done")
        return True


async def _done(sent: Awaitable[Any]) -> None:
    """A pause that another producer has resumed is over, too."""
    with contextlib.suppress(NotPaused):
        await sent


def _request(function: Function, token: str, args: tuple[Any, ...], when: datetime | None, key: str) -> dict[str, Any]:
    shown = [len(arg) if isinstance(arg, bytes) and len(arg) > LONGEST_ARGUMENT else arg for arg in args]
    due = when.timestamp() if when is not None else None
    return {"function": function.__name__, "token": token, "args": shown, "due": due, "key": key}


async def produce(requests: Requests, settings: Settings, stop: asyncio.Event) -> None:
    """Adds pieces of work at this rate until told to
    stop. Then it finishes those that it has begun."""
    for work in WORK:
        await work.begin(requests)
    kinds = [work for work in WORK if not settings.work or work.name in settings.work]
    shares = [work.share for work in kinds]
    under_way, mark = set[asyncio.Task[None]](), settings.path / BACKLOG_MARK
    next_at = time.monotonic()
    while not stop.is_set():
        next_at = max(next_at + requests.random.expovariate(settings.rate), time.monotonic() - 1.0)
        if len(under_way) < MOST_UNDER_WAY and not mark.exists():
            [work] = requests.random.choices(kinds, shares)
            task = asyncio.create_task(work.produce(requests))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), max(next_at - time.monotonic(), 0.0))
    if under_way:
        await asyncio.wait(under_way)


async def main(settings: Settings, history: History) -> None:
    counts, stop = MetricCounts(), asyncio.Event()
    docket = settings.make_docket()
    docket.server.entry_seconds = 120.0
    async with docket:
        requests = Requests(docket, history, f"{settings.seed}-{settings.process}")
        with stopped_by_signals(stop.set):
            history.write("ready")
            await produce(requests, settings, stop)
    history.write("metrics", totals=counts.totals)


if __name__ == "__main__":
    _settings = Settings.from_json(sys.argv[1])
    _history = History(_settings.path, _settings.process)
    _history.write("process")
    watch_for_stalls(_history)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    if _settings.broken:
        BUILDS[_settings.broken].apply()
    asyncio.run(main(_settings, _history))
