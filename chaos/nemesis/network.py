"""Faults of the network between one process and the
server, sometimes between all and the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from chaos.processes import Place

from .arena import Arena
from .base import FaultKind

# How often a fault harms everybody.
FOR_ALL = 0.2


class NetworkFault(FaultKind):
    """Harms one place, or all of them, for a while."""

    least, most = 1.0, 4.0

    async def inflict(self, arena: Arena) -> None:
        everywhere = [*arena.workers, *arena.producers]
        with contextlib.ExitStack() as stack:
            if arena.random.random() < FOR_ALL:
                places: Sequence[Place] = everywhere
            else:
                place = stack.enter_context(arena.victim(everywhere))
                places = [place] if place is not None else []
            if places:
                async with arena.fault(self.name, *(place.name for place in places)):
                    for place in places:
                        self.begin(place, arena)
                    await asyncio.sleep(arena.seconds(self.least, self.most))
                    for place in places:
                        await self.end(place)

    def begin(self, place: Place, arena: Arena) -> None: ...

    async def end(self, place: Place) -> None: ...


class Delay(NetworkFault):
    """Both directions are slow."""

    name = "network slow"

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.delays = dict.fromkeys((True, False), arena.seconds(0.02, 0.3))

    async def end(self, place: Place) -> None:
        place.proxy.delays = {}


class Lag(NetworkFault):
    """One direction is very slow."""

    name = "one direction lags"

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.delays = {arena.random.random() < 0.5: arena.seconds(0.3, 1.5)}

    async def end(self, place: Place) -> None:
        place.proxy.delays = {}


class Throttle(NetworkFault):
    name = "network throttled"

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.bytes_per_second = arena.random.choice([20_000.0, 100_000.0, 400_000.0])

    async def end(self, place: Place) -> None:
        place.proxy.bytes_per_second = None


class Blackhole(NetworkFault):
    """Nothing passes, and nobody can connect."""

    name = "network gone"
    times = 2

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.vanish()

    async def end(self, place: Place) -> None:
        place.proxy.reappear()


class Freeze(NetworkFault):
    """The connections carry nothing more; new ones work."""

    name = "connections silent"
    least, most = 0.0, 0.1

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.freeze()


class Reset(NetworkFault):
    name = "connections reset"
    times = 2
    least, most = 0.0, 0.5

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.break_all()


class LostAnswers(NetworkFault):
    """The server does what it is asked to, and the answer is lost."""

    name = "answers lost"
    times = 2
    least, most = 0.0, 0.5

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.answers_to_cut = 3

    async def end(self, place: Place) -> None:
        place.proxy.answers_to_cut = 0


class LateRequests(NetworkFault):
    """The network keeps requests whose connections end, and delivers them afterwards."""

    name = "requests late"
    times = 2
    least, most = 0.5, 4.0

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.requests_to_keep = 3

    async def end(self, place: Place) -> None:
        place.proxy.requests_to_keep = 0
        # The server may be away: then the requests are lost.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(2.0):
                await place.proxy.deliver_kept()


class LateMessages(NetworkFault):
    """Published messages arrive late."""

    name = "messages late"

    def __init__(self, least: float = 1.0, most: float = 4.0) -> None:
        self.least, self.most = least, most

    def begin(self, place: Place, arena: Arena) -> None:
        place.proxy.messages.clear()

    async def end(self, place: Place) -> None:
        place.proxy.messages.set()
