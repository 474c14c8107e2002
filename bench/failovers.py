"""Measures fail-overs and slot migrations under load:
`python -m bench.failovers [--failovers 20] [--migrations 10]`.

One producer adds tasks with `durability="replica"`, three worker processes run them. Behind
sentinels the primary is killed, paused, or replaced in good order, in turn; an old primary comes
back afterwards. On a cluster the docket's slot migrates to another node and back. The time counts
from the moment at which a sentinel names the new primary, or the slot has its new owner, until
every worker has started a task that was added after that moment.

The exit code is 1 if an acknowledged task was lost, a worker has ended, or 95 of 100 recoveries
took two seconds or more.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from redis.exceptions import RedisError, ResponseError

from docket.testing.servers import Cluster, Sentinels, ServerProcess, SlotMigration

from .failover_load import NAME, PATIENCE, Load
from .outages import percentile

RATE = 150.0
WORKERS = 3
# Under load, before the next fault.
CALM_SECONDS = 2.0
GOAL_SECONDS = 2.0


@dataclass
class Figures:
    """What one series of faults has shown."""

    kind: str
    # Seconds for each fault and each worker.
    recoveries: list[float] = field(default_factory=list[float])
    acknowledged: int = 0
    unconfirmed: int = 0
    refused: int = 0
    lost_answers: int = 0
    lost: list[int] = field(default_factory=list[int])
    repeated: int = 0
    exited: list[str] = field(default_factory=list[str])

    @property
    def p95(self) -> float:
        return percentile(self.recoveries, 0.95)

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.exited and self.p95 < GOAL_SECONDS

    def __str__(self) -> str:
        return (
            f"{self.kind}: {self.acknowledged:,} tasks acknowledged, {len(self.lost)} of them lost, {self.repeated} "
            f"started twice; {self.unconfirmed} NotDurable, {self.refused} refused, {self.lost_answers} answers lost; "
            f"{len(self.exited)} workers ended\n"
            f"  recovery: half within {statistics.median(self.recoveries):.2f} s, 95 of 100 within {self.p95:.2f} s, "
            f"the longest {max(self.recoveries):.2f} s"
        )


Fault = Callable[[], Awaitable[tuple[float, float]]]


async def under_load(kind: str, url: str, faults: list[tuple[str, Fault]], *, rate: float = RATE) -> Figures:
    """Makes the faults one after the other. Each returns the moments at which the old node has lost
    the docket and the new one has it."""
    figures, backs = Figures(kind), list[float]()
    async with Load(url, workers=WORKERS, rate=rate) as load:
        await load.all_work(time.monotonic())
        for number, (name, make) in enumerate(faults, 1):
            await asyncio.sleep(CALM_SECONDS)
            began, back = await make()
            seconds = [max(at - back, 0.0) for at in await load.all_work(back)]
            figures.recoveries += seconds
            backs.append(back)
            times = "  ".join(f"{each:5.2f}" for each in seconds)
            print(f"{kind} {number:>3} ({name}, away {back - began:4.1f} s): {times}", flush=True)
        await asyncio.sleep(CALM_SECONDS)
        await load.stop()
        figures.lost = await load.lost()
        figures.exited = load.exited()
        adds, starts = load.adds, load.starts()
        for number in figures.lost:
            sent, confirmed = adds.sent_at[number], adds.acknowledged[number]
            fault = sum(back < confirmed for back in backs) or 1
            times = f"sent at {sent - backs[fault - 1]:+.3f} s, acknowledged at {confirmed - backs[fault - 1]:+.3f} s"
            print(f"lost: task {number}, {times} of {kind} {fault}", flush=True)
        figures.acknowledged = len(adds.acknowledged)
        figures.unconfirmed, figures.refused, figures.lost_answers = adds.unconfirmed, adds.refused, adds.lost_answers
        figures.repeated = sum(count > 1 for count in starts.values())
    return figures


class FailOvers:
    """The ways in which a primary behind sentinels is replaced."""

    def __init__(self, sentinels: Sentinels) -> None:
        self._sentinels = sentinels

    def faults(self, count: int) -> list[tuple[str, Fault]]:
        kinds: list[tuple[str, Fault]] = [("killed", self.kill), ("silent", self.pause), ("replaced", self.replace)]
        return [kinds[number % len(kinds)] for number in range(count)]

    async def kill(self) -> tuple[float, float]:
        """The primary crashes and is restarted, as a supervisor does. It comes back while the
        sentinels replace it, and takes itself for the primary."""
        old = await self._primary()
        began = time.monotonic()
        old.kill()
        await asyncio.to_thread(self._wait_for_fail_over, old)
        old.launch()
        return began, await self._another(old)

    async def pause(self) -> tuple[float, float]:
        """The primary falls silent. It comes back and
        believes for a while that it is the primary."""
        old = await self._primary()
        began = time.monotonic()
        old.pause()
        back = await self._another(old)
        old.wake()
        return began, back

    async def replace(self) -> tuple[float, float]:
        """The sentinels replace the primary, which goes on as a replica."""
        old = await self._primary()
        began = time.monotonic()
        await asyncio.to_thread(self._sentinels.sentinels[0].run, "SENTINEL", "FAILOVER", "main")
        return began, await self._another(old)

    async def _primary(self) -> ServerProcess:
        """The primary, once the others are its replicas:
        a fail-over needs one that is up to date."""
        return await asyncio.to_thread(self._wait_for_replicas)

    def _wait_for_replicas(self) -> ServerProcess:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                primary = self._sentinels.current_primary()
                others = [server for server in self._sentinels.data_servers if server is not primary]
                if all(_follows(server, primary) for server in others) and self._sentinels_agree(primary):
                    return primary
            except RedisError:
                pass
            assert time.monotonic() < deadline, "the replicas do not follow the primary"
            time.sleep(0.05)

    def _sentinels_agree(self, primary: ServerProcess) -> bool:
        """A sentinel refuses a fail-over of replicas that it counts as down."""
        for sentinel in self._sentinels.sentinels:
            if int(sentinel.run("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1]) != primary.port:
                return False
            for replica in sentinel.run("SENTINEL", "REPLICAS", "main"):
                if b"down" in replica[b"flags"] or replica[b"master-link-status"] != b"ok":
                    return False
        return True

    def _wait_for_fail_over(self, old: ServerProcess) -> None:
        """Until then a restart would keep the sentinels from replacing it."""
        deadline = time.monotonic() + PATIENCE
        while not any(self._replaces(sentinel, old) for sentinel in self._sentinels.sentinels):
            assert time.monotonic() < deadline, "no sentinel replaces the primary"
            time.sleep(0.005)

    def _replaces(self, sentinel: ServerProcess, old: ServerProcess) -> bool:
        fields = sentinel.run("SENTINEL", "MASTER", "main")
        return b"failover_in_progress" in fields[b"flags"] or int(fields[b"port"]) != old.port

    async def _another(self, old: ServerProcess) -> float:
        return await asyncio.to_thread(self._wait_for_another, old)

    def _wait_for_another(self, old: ServerProcess) -> float:
        """The moment at which a sentinel names another primary. Nobody can find it before."""
        words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if any(int(sentinel.run(*words)[1]) != old.port for sentinel in self._sentinels.sentinels):
                return time.monotonic()
            time.sleep(0.005)
        raise AssertionError("no other server became the primary")


def _follows(server: ServerProcess, primary: ServerProcess) -> bool:
    role = server.run("ROLE")
    return role[0] == b"slave" and int(role[2]) == primary.port and role[3] == b"connected"


class Migrations:
    """The docket's slot moves to another node, and back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._slot = cluster.slot(f"{{{NAME}}}:")
        self._nodes = (cluster.owner(self._slot), self._other(cluster.owner(self._slot)))

    def faults(self, count: int, *, in_one_step: bool) -> list[tuple[str, Fault]]:
        name = "in one step" if in_one_step else "key by key"
        return [(name, lambda: self._migrate(in_one_step)) for _ in range(count)]

    def can_migrate_in_one_step(self) -> bool:
        try:
            self._nodes[0].run("CLUSTER", "GETSLOTMIGRATIONS")
        except ResponseError:
            return False
        return True

    async def _migrate(self, in_one_step: bool) -> tuple[float, float]:
        owner = self._cluster.owner(self._slot)
        target = self._nodes[1] if owner is self._nodes[0] else self._nodes[0]
        migration = SlotMigration(self._cluster, self._slot, target)
        began = time.monotonic()
        await asyncio.to_thread(migration.run_in_one_step if in_one_step else migration.run)
        return began, time.monotonic()

    def _other(self, owner: ServerProcess) -> ServerProcess:
        """Another primary."""
        return next(node for node in self._cluster.nodes if node is not owner and node.run("ROLE")[0] == b"master")


async def fail_over(count: int, *, rate: float = RATE) -> Figures:
    with Sentinels("--appendonly", "yes") as sentinels:
        return await under_load("fail-over", sentinels.url, FailOvers(sentinels).faults(count), rate=rate)


async def migrate(count: int, *, in_one_step: bool, rate: float = RATE) -> Figures | None:
    """None if the server cannot migrate a slot in one step."""
    with Cluster("--appendonly", "yes") as cluster:
        migrations = Migrations(cluster)
        if in_one_step and not migrations.can_migrate_in_one_step():
            return None
        faults = migrations.faults(count, in_one_step=in_one_step)
        return await under_load("migration", cluster.url, faults, rate=rate)


async def measure(failovers: int, migrations: int) -> list[Figures]:
    found = [
        await fail_over(failovers) if failovers else None,
        await migrate(migrations, in_one_step=False) if migrations else None,
        await migrate(migrations, in_one_step=True) if migrations else None,
    ]
    return [figures for figures in found if figures is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--migrations", type=int, default=10)
    options = parser.parse_args()
    logging.getLogger("docket").setLevel(logging.ERROR)
    found = asyncio.run(measure(options.failovers, options.migrations))
    for figures in found:
        print(figures)
    sys.exit(0 if all(figures.is_good for figures in found) else 1)


if __name__ == "__main__":
    main()
