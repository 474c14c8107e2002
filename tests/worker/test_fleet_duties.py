"""What a scheduled task and an idle worker cost, however many workers there are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from docket import Docket, Worker
from docket.ledger import Duty, Reclaimed
from docket.storage.server import Server
from docket.worker.fleet import sampler
from docket.worker.lease import lease
from docket.worker.lease.reclaimer import Reclaimer
from tests.nodes import command_counts
from tests.running import at_work
from tests.waiting import eventually


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each script was called by the event loop; renewals are not among them."""
    counts, run = Counter[str](), Server.run

    async def noted(server: Server, script: str, *args: Any, **options: Any) -> Any:
        counts[script] += 1
        return await run(server, script, *args, **options)

    monkeypatch.setattr(Server, "run", noted)
    return counts


@pytest.mark.parametrize("count", [1, 10])
async def test_a_scheduled_task_costs_three_scripts_however_many_workers_there_are(
    docket: Docket, scripts: Counter[str], count: int
) -> None:
    ended: list[int] = []

    async def note(number: int) -> None:
        ended.append(number)

    docket.register(note)
    tasks = 20
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker(docket, name=f"worker-{n}")) for n in range(count)]
        await stack.enter_async_context(at_work(*workers))
        await eventually(lambda: all(worker.staff.fetcher.has_offer for worker in workers), "all workers offer a slot")
        # Until every stager has found out what its duty is.
        await asyncio.sleep(0.2)
        scripts.clear()
        begin = docket.now() + timedelta(seconds=0.2)
        for n in range(tasks):
            await docket.add(note, when=begin + n * timedelta(seconds=0.1))(n)
        await eventually(lambda: len(ended) == tasks, "all tasks have ended")
        # The last settlement and the deputy's last look.
        await asyncio.sleep(0.7)
        assert scripts["enqueue"] == tasks
        assert scripts["stage"] <= tasks + 2
        assert sum(scripts.values()) <= 3 * tasks + 5, scripts


async def test_a_leader_with_nothing_to_stage_does_not_load_the_script(
    docket: Docket, worker: Worker, scripts: Counter[str]
) -> None:
    ended = asyncio.Event()

    async def end() -> None:
        ended.set()

    docket.register(end)
    async with at_work(worker):
        await eventually(lambda: worker.staff.duties.leads, "the worker leads")
        await docket.add(end)()
        await ended.wait()
        assert scripts["stage"] == 0
        ended.clear()
        # The stager hears of a task that is scheduled.
        await docket.add(end, when=docket.now() + timedelta(milliseconds=50))()
        await ended.wait()
        assert scripts["stage"] > 0


class NotedReclaims:
    """A ledger that notes what the reclaimer asks for."""

    def __init__(self, *consumers: bytes) -> None:
        self.consumers = list(consumers)
        # The part of the ledger that the reclaimer uses.
        self.fleet = self
        self.reclaimed: list[list[bytes]] = []
        self.corrected = 0

    def correct_leases(self, client: Any) -> None:
        self.corrected += 1

    def consumers_without_lease(self, client: Any) -> list[bytes]:
        return self.consumers

    def reclaim(self, *args: Any, consumers: list[bytes], **options: Any) -> Reclaimed:
        self.reclaimed.append(consumers)
        return Reclaimed()


@pytest.mark.parametrize(
    ("consumers", "is_due", "expected"),
    [((), False, []), ((), True, [[]]), ((b"gone~1",), False, [[b"gone~1"]])],
)
def test_a_leader_reclaims_only_if_there_is_something_to_reclaim(
    consumers: tuple[bytes, ...], is_due: bool, expected: list[list[bytes]]
) -> None:
    ledger = NotedReclaims(*consumers)
    duties = SimpleNamespace(leads=True, willing=False, duty=Reclaimed().duty)
    lease = SimpleNamespace(worker="w~1", length_ms=1, late_ms=1, age=0.0, interval=1.0)
    parts: Any = (ledger, lease, object, duties, {}, lambda: True, lambda *_: None, threading.Event())
    reclaimer = Reclaimer(*parts)
    renewal: Any = SimpleNamespace(reclaiming_is_due=is_due)
    reclaimer.step(renewal)
    assert (ledger.corrected, ledger.reclaimed) == (1, expected)
    # The next check of leases is a minute away.
    renewal.reclaiming_is_due = False
    reclaimer.step(renewal)
    assert (ledger.corrected, ledger.reclaimed) == (1, expected)


async def test_a_deputy_looks_twice_a_second_at_most_while_its_leader_works_off_a_backlog(
    docket: Docket, worker: Worker, scripts: Counter[str]
) -> None:
    async def note() -> None: ...

    docket.register(note)
    # A leader that is somewhere else, and stages all the time.
    await docket.ledger.fleet.register("elsewhere~1", 60_000, ["note"])
    fleet, client = docket.keys.key("fleet"), docket.server.client
    async with at_work(worker):
        await eventually(lambda: worker.staff.duties.duty is Duty.DEPUTY, "the worker is the deputy")
        await client.hset(fleet, "staged", int(time.time() * 1000))
        await docket.add(note, when=docket.now() + timedelta(milliseconds=10))()
        scripts.clear()
        began = time.monotonic()
        while (seconds := time.monotonic() - began) < 2.5:
            await client.hset(fleet, "staged", int(time.time() * 1000))
            await asyncio.sleep(0.05)
        assert worker.staff.duties.duty is Duty.DEPUTY
        assert scripts["stage"] <= 1 + 2 * seconds
        # Then that one is held up.
        await eventually(lambda: worker.staff.duties.leads, "the worker leads")


async def test_an_idle_worker_needs_at_most_three_commands_a_second(
    docket: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those inside of scripts included. They are counted by renewal, every two seconds: how many
    renewals fall into the time of the test depends on the machine. A PING is the question of a
    connection that has heard nothing for a while, and busy machines hear late."""
    # Another test of this process may have set up metrics, which cost a few commands more.
    monkeypatch.setattr(sampler, "has_receiver", lambda: False)
    seconds = 8.0

    async with at_work(worker):
        await eventually(lambda: worker.staff.fetcher.has_offer, "the worker offers a slot")
        await asyncio.sleep(1)
        before, began = await command_counts(docket), time.monotonic()
        await asyncio.sleep(seconds)
        spent, took = await command_counts(docket) - before, time.monotonic() - began
    del spent["info"], spent["ping"]
    renewals = spent["evalsha"]
    assert 1 <= renewals <= took / 2 + 1, spent
    assert spent.total() / (2 * renewals) <= 3.0, spent


@pytest.mark.parametrize("leaving", [2, 3, 6], ids=lambda count: f"{count} of 8")
async def test_other_workers_lead_at_once_when_several_leave_together(
    docket: Docket, monkeypatch: pytest.MonkeyPatch, leaving: int
) -> None:
    # No ordinary renewal finds the vacant duties.
    monkeypatch.setattr(lease, "LONGEST_INTERVAL", 3600.0)
    patient = Docket(docket.name, docket.url, heartbeat_interval=timedelta(hours=1))
    async with patient, AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker(patient, name=f"worker-{n}")) for n in range(8)]
        await stack.enter_async_context(at_work(*workers))
        left = workers
        while len(left) > 1:
            await eventually(lambda left=left: any(worker.staff.duties.leads for worker in left), "one leads", 20)
            left.sort(key=lambda worker: worker.staff.duties.duty is Duty.NONE)
            gone, left = left[:leaving], left[leaving:] or left[-1:]
            for worker in gone:
                if worker not in left:
                    worker.stop()
        await eventually(lambda: all(worker.staff.duties.leads for worker in left), "the last worker leads", 20)


async def test_a_message_about_a_vacant_duty_that_is_sent_again_costs_a_renewal_a_second(docket: Docket) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(Worker(docket, name=f"worker-{n}")) for n in range(3)]
        await stack.enter_async_context(at_work(*workers))
        (third,) = [worker for worker in workers if worker.staff.duties.duty is Duty.NONE]
        renewals = 0
        renew_now = third.staff.registration.renewer.renew_now

        def counted() -> None:
            nonlocal renewals
            renewals += 1
            renew_now()

        third.staff.registration.renewer.renew_now = counted  # pyright: ignore[reportAttributeAccessIssue]
        channel = docket.keys.worker_channel(third.staff.registration.id)
        seen: asyncio.Queue[bytes] = asyncio.Queue()
        await docket.subscriptions.listen(channel, seen.put_nowait)
        next(worker for worker in workers if worker.staff.duties.leads).stop()
        message = await asyncio.wait_for(seen.get(), 30)
        assert message.startswith(b"D")
        began = time.monotonic()
        async with docket.redis() as redis:
            for _ in range(100):
                await redis.publish(channel, message)
        await eventually(lambda: seen.qsize() >= 100, "all messages have arrived")
        assert 1 <= renewals <= 2 + (time.monotonic() - began)
