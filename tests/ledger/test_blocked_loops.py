"""What the renewal thread gives to other workers while the event loop is blocked."""

from __future__ import annotations

import asyncio
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

from docket.ledger import SettleResult, requeue
from docket.worker.claiming.intake import Prefetcher
from docket.worker.lease.lease_events import Activity
from docket.worker.lease.watchdog import LOOP_BLOCKED_SECONDS, Watchdog
from docket.worker.running.runs import Run, Slots
from tests.waiting import eventually

from .ledger_client import LedgerClient


async def test_prefetched_runs_go_to_other_workers(ledger_client: LedgerClient) -> None:
    ledger, worker, other = ledger_client.ledger, await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add("a", "b")
    started, requeued = list[Run](), list[Run]()
    prefetch = Prefetcher(Slots(10), lambda: False, lambda run: started.append(run) is None, requeued.append)
    for delivery in await ledger_client.take(worker, 2):
        prefetch.add(Run(delivery.key, delivery.record, delivery.epoch, 0.0, worker))
    client = ledger.server.threaded_client(lambda: 5.0, ledger.keys.stream)
    events = SimpleNamespace(
        activity=lambda: Activity(2, has_offer=False, stopping=False),
        take_prefetched=prefetch.take_all,
        requeue=requeued.append,
    )
    watchdog = Watchdog(
        ledger,
        cast(Any, SimpleNamespace(worker=worker)),
        lambda: client,
        cast(Any, events),
        cast(Any, asyncio.get_running_loop().call_soon_threadsafe),
    )
    watchdog.ping()
    stepping = threading.Thread(target=watchdog.step)
    # The loop does not run in the meantime.
    time.sleep(LOOP_BLOCKED_SECONDS * 1.2)
    stepping.start()
    stepping.join()

    assert [run.key for run in await ledger_client.take(other, 5)] == ["a", "b"]
    await eventually(lambda: [run.key for run in requeued] == ["a", "b"], "the loop forgets the runs")
    assert not started
    # So the loop, too, requeues each of them.
    for run in requeued:
        assert await ledger_client.settle(requeue(run.key, run.epoch)) == [SettleResult.LOST]
    client.close()
