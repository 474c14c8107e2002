"""One chaos run: starts everything, lets the nemesis at it, drains, and inspects what is left."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from docket import Docket
from docket.errors import DocketError

from .broken import BUILDS
from .children import ChildWatch
from .histories import History
from .inspection import inspect
from .nemesis import Arena, FaultKind, Nemesis
from .nemesis.schedule import MEAN_GAP_SECONDS
from .processes import Place
from .producer_process import Requests
from .proxy import Proxy
from .servers import SERVERS, Servers
from .settings import Settings
from .stalls import watch_for_stalls
from .watcher import watch_events, watch_loop, watch_waiting
from .work import ENDLESS

MAIN = "main"
WORKERS, PRODUCERS = 4, 2
RATE = 80.0
# A worker whose clock is wrong by two minutes, or by a little.
CLOCKS = (0.0, 0.0, 120.0, -120.0, 2.0, -2.0)
DRAIN_SECONDS = 120.0
EXIT_SECONDS = 60.0


@dataclass(frozen=True)
class Options:
    """The settings of one run."""

    seconds: float = 60.0
    seed: int = 1
    workers: int = WORKERS
    producers: int = PRODUCERS
    rate: float = RATE
    # The kind of servers: standalone, sentinel or cluster.
    servers: str = "standalone"
    # None means all that these servers can have.
    faults: Sequence[FaultKind] | None = None
    gap_seconds: float = MEAN_GAP_SECONDS
    clocks: Sequence[float] = CLOCKS
    broken: str = ""
    # The names of the kinds of work; none means all.
    work: Sequence[str] = ()
    drain_seconds: float = DRAIN_SECONDS


class Harness:
    """The processes, the server and the watchers of one run."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder = folder
        self._options = options
        self._random = Random(options.seed)
        self._history = History(folder, MAIN)

    async def run(self) -> None:
        """Leaves the histories of all processes in the folder."""
        options, history = self._options, self._history
        watch_for_stalls(history)
        history.write("options", **{**dataclasses.asdict(options), "faults": None})
        async with AsyncExitStack() as stack:
            servers = SERVERS[options.servers]()
            stack.callback(servers.close)
            await asyncio.to_thread(servers.start)
            settings = self._settings = Settings(
                str(self._folder), servers.url, MAIN, options.seed, durability=servers.durability
            )
            docket = settings.make_docket()
            await stack.enter_async_context(docket)
            workers = [await self._place(stack, servers, f"w{i}", "worker") for i in range(options.workers)]
            producers = [await self._place(stack, servers, f"p{i}", "producer") for i in range(options.producers)]
            requests = Requests(docket, history, f"{options.seed}-{MAIN}")
            arena = Arena(self._random, history, servers, workers, producers, requests)
            faults = servers.faults if options.faults is None else options.faults
            history.write("faults", kinds=[fault.name for fault in faults])
            children = ChildWatch(workers, history)
            async with (
                _background(watch_events(servers.client, docket.keys, history)),
                _background(watch_waiting(servers.client, docket.keys, history, self._folder)),
                _background(watch_loop(history)),
                _background(children.watch()),
            ):
                await self._load(arena, faults)
                await self._drain(docket, requests)
                await self._end(workers)
            await children.finish()
            async with servers.client() as client:
                await inspect(client, docket, history)
        history.write("over")

    async def _place(self, stack: AsyncExitStack, servers: Servers, name: str, program: str) -> Place:
        proxy = await servers.link(stack)
        place = Place(name, f"chaos.{program}_process", proxy, self._settings_of, self._history)
        stack.callback(place.clean_up)
        return place

    def _settings_of(self, process: str, proxy: Proxy | None) -> Settings:
        options = self._options
        is_worker = process.startswith("w")
        return dataclasses.replace(
            self._settings,
            url=proxy.url if proxy is not None else self._settings.url,
            process=process,
            rate=options.rate / options.producers,
            work=tuple(options.work),
            clock_seconds=self._random.choice(options.clocks) if is_worker else 0.0,
            broken=options.broken if options.broken and BUILDS[options.broken].in_producers != is_worker else "",
        )

    async def _load(self, arena: Arena, faults: Sequence[FaultKind]) -> None:
        """Load and faults, until the time is over and all faults are healed."""
        places = [*arena.workers, *arena.producers]
        for place in places:
            place.start()
        self._keepers = {place: asyncio.create_task(place.keep_up()) for place in places}
        for place in places:
            await _wait_until_ready(place)
        self._history.write("phase", phase="load")
        await Nemesis(arena, faults, self._options.gap_seconds).run(self._options.seconds)
        await self._end(arena.producers)

    async def _end(self, places: Sequence[Place]) -> None:
        """Asks these processes to end, and waits until they have."""
        for place in places:
            await _wait_until_ready(place)
            place.stop()
        await asyncio.wait([self._keepers[place] for place in places], timeout=EXIT_SECONDS)
        for place in places:
            if place.pid is not None:
                self._history.write("does not end", process=place.process_name)
                place.clean_up()

    async def _drain(self, docket: Docket, requests: Requests) -> None:
        """Waits until no task is left. Tasks that never end by themselves are cancelled."""
        self._history.write("phase", phase="drain")
        for key in ENDLESS:
            await requests.cancel(key)
        deadline = time.monotonic() + self._options.drain_seconds
        while await docket.ledger.queries.unfinished():
            await requests.resume_all()
            if time.monotonic() > deadline:
                await self._note_unfinished(docket)
                break
            await asyncio.sleep(0.2)
        self._history.write("phase", phase="end")

    async def _note_unfinished(self, docket: Docket) -> None:
        with contextlib.suppress(DocketError):
            snapshot = await docket.snapshot()
            for execution in [*snapshot.running, *snapshot.future]:
                self._history.write(
                    "unfinished", key=execution.key, function=execution.function_name, state=execution.state.value
                )


async def _wait_until_ready(place: Place) -> None:
    """A process that has just started has no handler for the signal yet."""
    deadline = time.monotonic() + EXIT_SECONDS
    while not place.is_ready and time.monotonic() < deadline:
        await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def _background(work: object) -> AsyncGenerator[None]:
    assert asyncio.iscoroutine(work)
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        # A client may take a cancel for its own time-out, so one need not be enough.
        while not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.2)
