"""A replica takes over that lacks the last writes, and its clock is behind the last epoch that was given out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from docket.ledger import Answer, Delivery, Settlement, hand_back, reschedule

from .desk import Desk, completed

DONE, LOST = Answer.DONE, Answer.LOST


def of(worker: str, settlement: Settlement) -> Settlement:
    settlement.worker = worker
    return settlement


async def one_epoch_for_two(desk: Desk) -> tuple[tuple[str, Delivery], tuple[str, Delivery]]:
    """Two workers that have claimed a task under the same epoch, of which the server knows the second only."""
    first, second = await desk.hire(), await desk.hire()
    await desk.add("k")
    # The clock was set back: it is behind the last epoch, and epochs follow each other one by one.
    desk.client.set(desk.ledger.keys.key("epoch"), (desk.now() + 3_600_000) * 1000)
    replicated: dict[Any, Any] = {name: desk.client.dump(name) for name in desk.client.keys("*")}
    (one,) = await desk.take(first)
    for name in desk.client.keys("*"):
        desk.client.delete(name)
    for name, value in replicated.items():
        desk.client.restore(name, 0, value)
    (other,) = await desk.take(second)
    assert (one.key, one.epoch) == (other.key, other.epoch), "an epoch was given out twice"
    return (first, one), (second, other)


@pytest.mark.parametrize(
    "ending",
    [
        completed,
        lambda run: completed(run, dead_letter=True),
        lambda run: hand_back(run.key, run.epoch),
        lambda run: reschedule(run.key, run.epoch, attempt=2, delay_ms=0),
    ],
    ids=["finish", "bury", "hand back", "reschedule"],
)
async def test_a_run_that_the_replica_never_heard_of_cannot_end_the_run_that_has_its_epoch(
    desk: Desk, ending: Callable[[Delivery], Settlement]
) -> None:
    (first, one), (second, other) = await one_epoch_for_two(desk)
    before = desk.sound_books()
    assert await desk.settle(of(first, ending(one))) == [LOST]
    assert desk.sound_books() == before
    assert await desk.settle(of(second, ending(other))) == [DONE]
    desk.sound_books()


async def test_endings_of_several_worker_ids_are_told_apart_in_one_batch(desk: Desk) -> None:
    """A worker that had to take a new id still writes endings of runs that it began under the former one."""
    (first, one), (second, other) = await one_epoch_for_two(desk)
    await desk.add("more")
    (more,) = await desk.take(first)
    answers = await desk.settle(of(first, completed(more)), of(first, completed(one)), of(second, completed(other)))
    assert answers == [DONE, LOST, DONE]
    assert not desk.sound_books().tasks
