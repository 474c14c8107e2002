"""The chain of an automatic task that somebody has
cancelled stays so, until a newer deploy starts."""

from __future__ import annotations

import asyncio

import pytest

from docket.ledger import Seed, SettleResult, as_chain_end, requeue

from .ledger_client import LedgerClient, completed

SCHEDULE, CANCELLED, BURIED = Seed.SCHEDULE, Seed.CANCELLED, Seed.BURIED


async def seeds(ledger_client: LedgerClient, deploy: str = "first") -> list[Seed]:
    # On the server's clock a deploy is newer only if a millisecond has passed.
    await asyncio.sleep(0.002)
    return await ledger_client.ledger.tasks.seedable(deploy, ["chain", "other"])


@pytest.fixture
async def seeded(ledger_client: LedgerClient) -> LedgerClient:
    assert await seeds(ledger_client) == [SCHEDULE, SCHEDULE]
    return ledger_client


async def test_a_waiting_chain_that_is_cancelled_is_left_alone_until_a_newer_deploy_starts(
    seeded: LedgerClient,
) -> None:
    await seeded.add("chain", "other", due_ms=seeded.later())
    assert await seeded.ledger.tasks.cancel("chain") == 1
    for _ in range(2):
        assert await seeds(seeded) == [CANCELLED, SCHEDULE]
    assert await seeds(seeded, "second") == [SCHEDULE, SCHEDULE]
    # From then on it is like any other, for the workers of the former deploy, too.
    assert await seeds(seeded) == [SCHEDULE, SCHEDULE]


async def test_a_deploy_that_was_there_before_is_not_newer(seeded: LedgerClient) -> None:
    assert await seeds(seeded, "second") == [SCHEDULE, SCHEDULE]
    await seeded.add("chain")
    await seeded.ledger.tasks.cancel("chain")
    assert await seeds(seeded, "first") == [CANCELLED, SCHEDULE]
    assert await seeds(seeded, "second") == [CANCELLED, SCHEDULE]


async def test_a_running_chain_that_is_cancelled_is_left_alone_before_and_after_its_run_has_ended(
    seeded: LedgerClient,
) -> None:
    worker = await seeded.hire()
    run = await seeded.start(worker, "chain")
    assert await seeded.ledger.tasks.cancel("chain") == 2
    assert await seeds(seeded) == [CANCELLED, SCHEDULE]
    assert await seeded.settle(requeue("chain", run.epoch)) == [SettleResult.CANCELLED]
    assert await seeds(seeded) == [CANCELLED, SCHEDULE]


async def test_a_chain_that_ends_itself_is_left_alone(seeded: LedgerClient) -> None:
    worker = await seeded.hire()
    run = await seeded.start(worker, "chain")
    assert await seeded.settle(as_chain_end(completed(run))) == [SettleResult.DONE]
    assert await seeds(seeded) == [CANCELLED, SCHEDULE]
    assert (await seeded.ledger.tasks.get("chain")).finished is not None
    assert not seeded.checked_state().dead


async def test_a_chain_that_is_added_by_hand_again_is_like_any_other(seeded: LedgerClient) -> None:
    await seeded.add("chain")
    await seeded.ledger.tasks.cancel("chain")
    await seeded.add("chain", due_ms=seeded.later())
    assert await seeds(seeded) == [SCHEDULE, SCHEDULE]
    seeded.client.delete(seeded.ledger.keys.schedule, seeded.ledger.keys.tasks)
    assert await seeds(seeded) == [SCHEDULE, SCHEDULE], "it fell off, and is put back"


async def test_what_is_no_automatic_task_leaves_no_mark(seeded: LedgerClient) -> None:
    await seeded.add("plain")
    await seeded.ledger.tasks.cancel("plain")
    run = await seeded.start(await seeded.hire(), "plain")
    await seeded.settle(as_chain_end(completed(run)))
    assert seeded.client.hlen(seeded.ledger.keys.key("cancelled-chains")) == 0


async def test_a_dead_letter_is_not_scheduled_again(seeded: LedgerClient) -> None:
    seeded.client.zadd(seeded.ledger.keys.key("dead"), {"chain": 1})
    assert await seeded.ledger.tasks.seedable("first", ["chain", "other"]) == [BURIED, SCHEDULE]


async def test_only_the_newest_deploys_are_remembered(seeded: LedgerClient) -> None:
    for n in range(120):
        await seeded.ledger.tasks.seedable(f"deploy {n}", ["chain"])
    assert seeded.client.hlen(seeded.ledger.keys.key("deploys")) == 100


async def test_a_chain_that_is_cancelled_while_a_worker_seeds_it_is_not_scheduled_again(seeded: LedgerClient) -> None:
    """Between the question whether it should be there and the request to schedule it."""
    worker = await seeded.hire()
    run = await seeded.start(worker, "chain")
    assert await seeds(seeded) == [SCHEDULE, SCHEDULE]
    await seeded.settle(as_chain_end(completed(run)))
    (result,) = await seeded.add("chain", seed=True)
    assert not result.scheduled
    assert (await seeded.ledger.tasks.get("chain")).task is None
    (by_hand,) = await seeded.add("chain")
    assert by_hand.scheduled
