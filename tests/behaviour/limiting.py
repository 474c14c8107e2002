"""A docket, workers and tasks that tell what they do, for the tests of limits."""

import asyncio
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from docket import Docket, Execution, ExecutionState, Worker
from docket.dependencies import AdmissionBlocked, Dependency, current_execution

PATIENCE = 20.0
_numbers = itertools.count()


class NotOnTheFirstTry(Dependency[None]):
    """Puts every task off once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def __aenter__(self) -> None:
        execution = current_execution.get()
        if execution.key not in self.seen:
            self.seen.add(execution.key)
            raise AdmissionBlocked(execution, "a test", retry_delay=timedelta(milliseconds=10))


class Diary:
    """What tasks did: who began when, who ended, and how many went on at a time."""

    def __init__(self) -> None:
        self.began: list[Any] = []
        self.times: list[float] = []
        self.ended: list[Any] = []
        self.at_once: Counter[Any] = Counter()
        self.most_at_once: Counter[Any] = Counter()
        self._gates: defaultdict[Any, asyncio.Event] = defaultdict(asyncio.Event)

    def begin(self, who: Any, group: Any = None) -> None:
        self.began.append(who)
        self.times.append(time.monotonic())
        self.at_once[group] += 1
        self.most_at_once[group] = max(self.most_at_once[group], self.at_once[group])

    def end(self, who: Any, group: Any = None) -> None:
        self.at_once[group] -= 1
        self.ended.append(who)

    async def hold(self, who: Any, group: Any = None) -> None:
        """Goes on until it is let go."""
        self.begin(who, group)
        try:
            await self._gates[who].wait()
        finally:
            self.end(who, group)

    async def nap(self, who: Any, group: Any = None, seconds: float = 0.01) -> None:
        self.begin(who, group)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.end(who, group)

    def let_go(self, *who: Any) -> None:
        for name in who:
            self._gates[name].set()

    async def has(self, *who: Any) -> None:
        """Waits until these have begun."""
        await eventually(lambda: set(who) <= set(self.began), f"{who} have begun; so far {self.began}")

    @property
    def now(self) -> set[Any]:
        left = Counter(self.began)
        left.subtract(self.ended)
        return {who for who, count in left.items() if count > 0}


async def eventually(holds: Callable[[], Any], what: str, within: float = PATIENCE) -> Any:
    """The first true answer, for what no event tells of. The question may be a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        answer = holds()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {within:g} s still not: {what}"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def open_docket(**options: Any) -> AsyncGenerator[Docket]:
    name = f"limits-{uuid4().hex[:12]}"
    async with Docket(name=name, url=f"memory://{name}", **options) as docket:
        yield docket


@asynccontextmanager
async def at_work(docket: Docket, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that runs beside the test and is stopped at its end."""
    async with Worker(docket, name=f"worker-{next(_numbers)}", **options) as worker:
        task = asyncio.create_task(worker.run_forever())
        try:
            await eventually(lambda: _is_there(docket, worker.name), "the worker works")
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(task, PATIENCE)


async def _is_there(docket: Docket, name: str) -> bool:
    return name in {info.name for info in await docket.workers()}


async def finish(docket: Docket, **options: Any) -> None:
    """Runs all there is."""
    async with Worker(docket, **options) as worker:
        task = asyncio.create_task(worker.run_until_finished())
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done:
            worker.stop()
        await task
        assert done, "the worker did not finish"


async def parked(docket: Docket, count: int) -> None:
    """Waits until so many tasks wait in line."""

    async def are() -> bool:
        return (await docket.ledger.census()).parked == count

    await eventually(are, f"{count} tasks wait in line")


async def reaches(execution: Execution, state: ExecutionState) -> None:
    async def is_there() -> bool:
        await execution.sync()
        return execution.state is state

    await eventually(is_there, f"{execution} is {state.value}")


async def assert_nothing_is_left(docket: Docket) -> None:
    """No slot, no line, no task; and whatever else the limits have written has a time to live."""
    async with docket.redis() as redis:
        keys: list[bytes] = await redis.keys("*")
        names = {key.decode().removeprefix(f"{docket.prefix}:").partition(":=")[0] for key in keys}
        left = names & {"slots", "line", "limits", "parked", "ghosts", "tasks", "running", "queue"}
        assert not left, f"left behind: {left}"
        for key in keys:
            if any(family in key for family in (b":rate:=", b":rate-line:=", b":cooldown:=", b":debounce:=")):
                assert await redis.pttl(key) > 0, f"{key!r} stays for ever"
