"""Tasks whose function the worker that got them does
not know wait, by function, for one that does."""

from __future__ import annotations

from typing import Any

import pytest

from docket.codec.proofs import proven_body
from docket.ledger import Delivery, SettleResult, WaitingFunctions, requeue, unknown_function
from docket.ledger.endings import Ending
from docket.model.states import ExecutionState
from docket.storage.records import read_task
from docket.storage.schema.locations import IN_STREAM, UNKNOWN_FUNCTION
from docket.storage.schema.records import CANCELLED_EVENT
from tests.waiting import SECONDS

from .ledger_client import LedgerClient, completed, new_task

DONE, KEPT, WAITS, LOST = SettleResult.DONE, SettleResult.KEPT, SettleResult.WAITS, SettleResult.LOST


async def meet(ledger_client: LedgerClient, worker: str, *keys: str, **options: Any) -> list[SettleResult]:
    """Tasks come to a worker that does not know their function."""
    await ledger_client.add(*keys, **options)
    return await ledger_client.settle(
        *(unknown_function(run.key, run.epoch) for run in await ledger_client.take(worker))
    )


async def take_from(
    ledger_client: LedgerClient, worker: str, *functions: str, count: int = 100
) -> tuple[list[Delivery], list[str]]:
    waiting = WaitingFunctions(list(functions))
    deliveries = await ledger_client.ledger.deliveries.take(worker, '"w"', count, functions=waiting)
    assert deliveries is not None
    assert waiting.left is not None
    return deliveries, waiting.left


class Listener:
    """What is said on the channel of a worker."""

    def __init__(self, ledger_client: LedgerClient, worker: str) -> None:
        self._client, self._channel = ledger_client.client, ledger_client.ledger.keys.worker_channel(worker)
        self._worker, self._secret = worker, ledger_client.client.get(ledger_client.ledger.keys.key("secret"))
        self._pubsub: Any = self._client.pubsub()
        self._pubsub.subscribe(self._channel)
        self._pubsub.get_message(timeout=SECONDS)

    def heard(self) -> list[bytes]:
        """Everything that was proven since the last time. A
        message of its own, empty, tells where to stop."""
        self._client.publish(self._channel, b"")
        found: list[bytes] = []
        while data := self._pubsub.get_message(timeout=SECONDS)["data"]:
            name = proven_body(self._secret, b"F", b"function", self._worker.encode(), data)
            assert name is not None
            found.append(name)
        return found


async def test_a_task_waits_until_a_worker_that_knows_its_function_asks_for_it(ledger_client: LedgerClient) -> None:
    ignorant = await ledger_client.hire("g")
    assert await meet(ledger_client, ignorant, "a", "b", "c") == [WAITS] * 3
    stored_state = ledger_client.checked_state()
    assert {task.location for task in stored_state.tasks.values()} == {UNKNOWN_FUNCTION}
    assert stored_state.unknown == {"f": ["a", "b", "c"]}
    assert await ledger_client.take(ignorant) == []
    learned = await ledger_client.hire("f")
    assert await ledger_client.take(learned) == [], "it has not asked"
    runs, left = await take_from(ledger_client, learned, "f", "g", count=2)
    assert ([run.key for run in runs], left) == (["a", "b"], ["f"])
    more, left = await take_from(ledger_client, learned, "f")
    assert ([run.key for run in more], left) == (["c"], [])
    assert {read_task(run.record).losses for run in runs} == {0}
    assert await ledger_client.settle(*(completed(run) for run in [*runs, *more])) == [DONE] * 3
    assert ledger_client.checked_state().unknown == {}


async def test_each_task_moves_once_however_many_workers_do_not_know_it(ledger_client: LedgerClient) -> None:
    """Those brought forward are read in the same step: a worker
    that does not know them cannot get them in between."""
    ignorant, learned = await ledger_client.hire("g"), await ledger_client.hire("f")
    await meet(ledger_client, ignorant, "a", "b", "c")
    await ledger_client.add("requeued", function="g")
    (other,) = await ledger_client.take(ignorant)
    await ledger_client.settle(requeue(other.key, other.epoch))
    runs, _ = await take_from(ledger_client, learned, "f", count=2)
    assert [run.key for run in runs] == ["requeued", "a"], "what was put back goes first"
    assert await ledger_client.take(ignorant) == []


async def test_live_workers_that_know_the_function_are_told(ledger_client: LedgerClient) -> None:
    ignorant, learned, dead = (
        await ledger_client.hire("g"),
        await ledger_client.hire("f"),
        await ledger_client.hire("f"),
    )
    listeners = {worker: Listener(ledger_client, worker) for worker in (ignorant, learned, dead)}
    ledger_client.bury(dead)
    assert await meet(ledger_client, ignorant, "a", "b") == [DONE, DONE]
    assert {worker: listener.heard() for worker, listener in listeners.items()} == {
        ignorant: [],
        learned: [b"f"],
        dead: [],
    }
    ledger_client.sweep()
    assert listeners[learned].heard() == [b"f"], "a worker that missed it is told again"


async def test_a_worker_that_registers_is_told_which_of_its_functions_have_tasks_waiting(
    ledger_client: LedgerClient,
) -> None:
    assert (await ledger_client.ledger.fleet.register("w~a", 60_000, ["f", "g"])).waiting_functions == []
    await meet(ledger_client, "w~a", "a")
    assert (await ledger_client.ledger.fleet.register("w~b", 60_000, ["g"])).waiting_functions == []
    assert (await ledger_client.ledger.fleet.register("w~c", 60_000, ["f", "g"])).waiting_functions == ["f"]


async def test_a_worker_that_has_to_end_keeps_what_no_other_live_worker_knows(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire("f", "g")
    run = await ledger_client.start(worker, "k")
    settlement = unknown_function("k", run.epoch, only_if_known=True)
    assert await ledger_client.settle(settlement) == [KEPT]
    other = await ledger_client.hire("f")
    ledger_client.bury(other)
    assert await ledger_client.settle(settlement) == [KEPT]
    await ledger_client.hire("f")
    assert await ledger_client.settle(settlement) == [DONE]
    assert await ledger_client.settle(settlement) == [LOST]
    ledger_client.checked_state()


async def test_tasks_that_wait_for_a_worker_can_be_cancelled_replaced_cleared_and_shown(
    ledger_client: LedgerClient,
) -> None:
    ignorant = await ledger_client.hire("g")
    await meet(ledger_client, ignorant, "cancelled", "replaced", "cleared", "seized")
    look = await ledger_client.ledger.tasks.get("cancelled")
    assert look.task is not None
    assert look.task.state is ExecutionState.QUEUED
    census = await ledger_client.ledger.queries.census()
    assert (census.unknown, census.ready, census.queued) == (4, 0, 4)
    assert await ledger_client.ledger.tasks.cancel("cancelled") == 1
    (result,) = await ledger_client.ledger.tasks.enqueue([new_task("replaced", replace=True)])
    assert (result.generation, result.replaced_another) == (2, True)
    assert (await ledger_client.ledger.tasks.claim_by_key("seized", "hand", "hand~hand-1", 1000))[1] > 0
    stored_state = ledger_client.stored_state()
    assert stored_state.unknown == {"f": ["cleared"]}
    assert stored_state.tasks["replaced"].location == IN_STREAM
    assert await ledger_client.ledger.tasks.clear() == 2
    assert ledger_client.stored_state().unknown_functions == set()


async def test_functions_that_nobody_knows_are_listed_with_their_tasks(ledger_client: LedgerClient) -> None:
    ignorant = await ledger_client.hire("h")
    before = ledger_client.now()
    await meet(ledger_client, ignorant, "a", "b")
    await meet(ledger_client, ignorant, "c", function="g:%x")
    await ledger_client.hire("f")
    found = {function.name: function for function in await ledger_client.ledger.tasks.unknown_functions()}
    assert {name: (f.tasks, f.is_known) for name, f in found.items()} == {"f": (2, True), "g:%x": (1, False)}
    assert all(before <= function.since_ms <= ledger_client.now() for function in found.values())


async def test_tasks_fail_only_while_no_live_worker_knows_their_function(ledger_client: LedgerClient) -> None:
    ignorant = await ledger_client.hire("g")
    await meet(ledger_client, ignorant, "a", "b")
    learned = await ledger_client.hire("f")
    assert await ledger_client.ledger.tasks.fail_unknown("f", Ending(), CANCELLED_EVENT) == 0
    ledger_client.bury(learned)
    assert await ledger_client.ledger.tasks.fail_unknown("f", Ending(), CANCELLED_EVENT) == 2
    stored_state = ledger_client.checked_state()
    assert {key: record.state for key, record in stored_state.finished.items()} == dict.fromkeys(
        "ab", ExecutionState.FAILED
    )
    assert (stored_state.tasks, stored_state.unknown_functions) == ({}, set())


async def test_a_cancel_that_came_too_late_ends_a_task_that_would_wait_for_another_worker(
    ledger_client: LedgerClient,
) -> None:
    ignorant = await ledger_client.hire("g")
    run = await ledger_client.start(ignorant, "k")
    assert await ledger_client.ledger.tasks.cancel("k") == 2
    assert await ledger_client.settle(unknown_function("k", run.epoch)) == [SettleResult.CANCELLED]
    assert ledger_client.checked_state().unknown == {}


@pytest.mark.parametrize("count", [1, 3])
async def test_the_sweep_mends_a_task_that_no_set_holds(ledger_client: LedgerClient, count: int) -> None:
    ignorant = await ledger_client.hire("g")
    await meet(ledger_client, ignorant, *(str(n) for n in range(count)))
    ledger_client.client.delete(ledger_client.ledger.keys.named("unknown", "f"))
    assert ledger_client.sweep() == count
    stored_state = ledger_client.stored_state()
    assert [entry.key for entry in stored_state.streams["front"].entries] == [str(n) for n in range(count)]
    assert stored_state.unknown_functions == set()
