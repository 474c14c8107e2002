"""Tasks whose function the worker that got them does not know wait, by function, for one that does."""

from __future__ import annotations

from typing import Any

import pytest

from docket.ledger import Answer, Delivery, WaitingFunctions, hand_back, unknown_function
from docket.ledger.endings import CANCELLED_EVENT, CANCELLED_TAIL
from docket.ledger.unknown_functions import fail_unknown, unknown_functions
from docket.model.states import ExecutionState
from docket.storage.records import QUEUED, UNKNOWN_FUNCTION, read_task

from .desk import Desk, completed, order

DONE, KEPT, WAITS, LOST = Answer.DONE, Answer.KEPT, Answer.WAITS, Answer.LOST


async def meet(desk: Desk, worker: str, *keys: str, **options: Any) -> list[Answer]:
    """Tasks come to a worker that does not know their function."""
    await desk.add(*keys, **options)
    return await desk.settle(*(unknown_function(run.key, run.epoch) for run in await desk.take(worker)))


async def take_from(desk: Desk, worker: str, *functions: str, count: int = 100) -> tuple[list[Delivery], list[str]]:
    waiting = WaitingFunctions(list(functions))
    deliveries = await desk.ledger.take(worker, '"w"', count, functions=waiting)
    assert deliveries is not None
    assert waiting.left is not None
    return deliveries, waiting.left


class Listener:
    """What is said on the channel of a worker."""

    def __init__(self, desk: Desk, worker: str) -> None:
        self._pubsub: Any = desk.client.pubsub()
        self._pubsub.subscribe(desk.ledger.keys.worker_channel(worker))
        self._pubsub.get_message(timeout=5)

    def heard(self) -> list[bytes]:
        found: list[bytes] = []
        while message := self._pubsub.get_message(timeout=0.2):
            found.append(message["data"])
        return found


async def test_a_task_waits_until_a_worker_that_knows_its_function_asks_for_it(desk: Desk) -> None:
    ignorant = await desk.hire("g")
    assert await meet(desk, ignorant, "a", "b", "c") == [WAITS] * 3
    books = desk.sound_books()
    assert {task.place for task in books.tasks.values()} == {UNKNOWN_FUNCTION}
    assert books.unknown == {"f": ["a", "b", "c"]}
    assert await desk.take(ignorant) == []
    learned = await desk.hire("f")
    assert await desk.take(learned) == [], "it has not asked"
    runs, left = await take_from(desk, learned, "f", "g", count=2)
    assert ([run.key for run in runs], left) == (["a", "b"], ["f"])
    more, left = await take_from(desk, learned, "f")
    assert ([run.key for run in more], left) == (["c"], [])
    assert {read_task(run.record).losses for run in runs} == {0}
    assert await desk.settle(*(completed(run) for run in [*runs, *more])) == [DONE] * 3
    assert desk.sound_books().unknown == {}


async def test_each_task_moves_once_however_many_workers_do_not_know_it(desk: Desk) -> None:
    """Those brought forward are read in the same step: a worker that does not know them cannot get them in between."""
    ignorant, learned = await desk.hire("g"), await desk.hire("f")
    await meet(desk, ignorant, "a", "b", "c")
    await desk.add("handed back", function="g")
    (other,) = await desk.take(ignorant)
    await desk.settle(hand_back(other.key, other.epoch))
    runs, _ = await take_from(desk, learned, "f", count=2)
    assert [run.key for run in runs] == ["handed back", "a"], "what was put back goes first"
    assert await desk.take(ignorant) == []


async def test_live_workers_that_know_the_function_are_told(desk: Desk) -> None:
    ignorant, learned, dead = await desk.hire("g"), await desk.hire("f"), await desk.hire("f")
    listeners = {worker: Listener(desk, worker) for worker in (ignorant, learned, dead)}
    desk.bury(dead)
    assert await meet(desk, ignorant, "a", "b") == [DONE, DONE]
    assert {worker: listener.heard() for worker, listener in listeners.items()} == {
        ignorant: [],
        learned: [b"function f"],
        dead: [],
    }
    desk.sweep()
    assert listeners[learned].heard() == [b"function f"], "a worker that missed it is told again"


async def test_a_worker_that_registers_is_told_which_of_its_functions_have_tasks_waiting(desk: Desk) -> None:
    assert (await desk.ledger.register("w~a", 60_000, ["f", "g"])).waiting_functions == []
    await meet(desk, "w~a", "a")
    assert (await desk.ledger.register("w~b", 60_000, ["g"])).waiting_functions == []
    assert (await desk.ledger.register("w~c", 60_000, ["f", "g"])).waiting_functions == ["f"]


async def test_a_worker_that_has_to_end_keeps_what_no_other_live_worker_knows(desk: Desk) -> None:
    worker = await desk.hire("f", "g")
    run = await desk.start(worker, "k")
    settlement = unknown_function("k", run.epoch, only_if_known=True)
    assert await desk.settle(settlement) == [KEPT]
    other = await desk.hire("f")
    desk.bury(other)
    assert await desk.settle(settlement) == [KEPT]
    await desk.hire("f")
    assert await desk.settle(settlement) == [DONE]
    assert await desk.settle(settlement) == [LOST]
    desk.sound_books()


async def test_tasks_that_wait_for_a_worker_can_be_cancelled_replaced_cleared_and_shown(desk: Desk) -> None:
    ignorant = await desk.hire("g")
    await meet(desk, ignorant, "cancelled", "replaced", "cleared", "seized")
    look = await desk.ledger.get("cancelled")
    assert look.task is not None
    assert look.task.state is ExecutionState.QUEUED
    census = await desk.ledger.census()
    assert (census.unknown, census.ready, census.queued) == (4, 0, 4)
    assert await desk.ledger.cancel("cancelled") == 1
    (receipt,) = await desk.ledger.enqueue([order("replaced", replace=True)])
    assert (receipt.generation, receipt.replaced_another) == (2, True)
    assert (await desk.ledger.seize("seized", "hand", "hand~hand-1", 1000))[1] > 0
    books = desk.books()
    assert books.unknown == {"f": ["cleared"]}
    assert books.tasks["replaced"].place == QUEUED
    assert await desk.ledger.clear() == 2
    assert desk.books().unknown_functions == set()


async def test_functions_that_nobody_knows_are_listed_with_their_tasks(desk: Desk) -> None:
    ignorant = await desk.hire("h")
    before = desk.now()
    await meet(desk, ignorant, "a", "b")
    await meet(desk, ignorant, "c", function="g:%x")
    await desk.hire("f")
    found = {function.name: function for function in await unknown_functions(desk.ledger)}
    assert {name: (f.tasks, f.is_known) for name, f in found.items()} == {"f": (2, True), "g:%x": (1, False)}
    assert all(before <= function.since_ms <= desk.now() for function in found.values())


async def test_tasks_fail_only_while_no_live_worker_knows_their_function(desk: Desk) -> None:
    ignorant = await desk.hire("g")
    await meet(desk, ignorant, "a", "b")
    learned = await desk.hire("f")
    assert await fail_unknown(desk.ledger, "f", CANCELLED_TAIL, CANCELLED_EVENT) == 0
    desk.bury(learned)
    assert await fail_unknown(desk.ledger, "f", CANCELLED_TAIL, CANCELLED_EVENT) == 2
    books = desk.sound_books()
    assert {key: record.state for key, record in books.finished.items()} == dict.fromkeys("ab", ExecutionState.FAILED)
    assert (books.tasks, books.unknown_functions) == ({}, set())


async def test_a_cancel_that_came_too_late_ends_a_task_that_would_wait_for_another_worker(desk: Desk) -> None:
    ignorant = await desk.hire("g")
    run = await desk.start(ignorant, "k")
    assert await desk.ledger.cancel("k") == 2
    assert await desk.settle(unknown_function("k", run.epoch)) == [Answer.CANCELLED]
    assert desk.sound_books().unknown == {}


@pytest.mark.parametrize("count", [1, 3])
async def test_the_sweep_mends_a_task_that_no_set_holds(desk: Desk, count: int) -> None:
    ignorant = await desk.hire("g")
    await meet(desk, ignorant, *(str(n) for n in range(count)))
    desk.client.delete(desk.ledger.keys.named("unknown", "f"))
    assert desk.sweep() == count
    books = desk.books()
    assert [entry.key for entry in books.streams["front"].entries] == [str(n) for n in range(count)]
    assert books.unknown_functions == set()
