"""Manual runs have a lease of their own. The sweep puts back those whose lease has ended."""

from __future__ import annotations

from docket.ledger import Delivery, SettleResult
from docket.ledger.fleet import manual_run_id

from .ledger_client import LEASE_MS, LedgerClient, completed


async def claim(ledger_client: LedgerClient, key: str, lease_ms: int = LEASE_MS) -> tuple[str, Delivery]:
    hand = manual_run_id("somebody")
    now_ms, epoch = await ledger_client.ledger.tasks.claim_by_key(key, "somebody", hand, lease_ms)
    assert epoch
    return hand, Delivery(key, b"", epoch, now_ms)


def end_lease(ledger_client: LedgerClient, hand: str) -> None:
    ledger_client.client.zadd(ledger_client.ledger.keys.key("manual-leases"), {hand: 1}, xx=True)


async def test_a_manual_run_is_left_alone_while_its_lease_holds(ledger_client: LedgerClient) -> None:
    for key, options in {"ready": {}, "scheduled": {"due_ms": ledger_client.later()}}.items():
        await ledger_client.add(key, **options)
        _, run = await claim(ledger_client, key)
        assert ledger_client.sweep() == 0
        assert ledger_client.stored_state().running[key].epoch == run.epoch
        assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    ledger_client.checked_state()


async def test_a_manual_run_whose_lease_has_ended_is_put_back(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    hand, run = await claim(ledger_client, "k")
    end_lease(ledger_client, hand)
    assert ledger_client.sweep() == 1
    ledger_client.checked_state()

    (again,) = await ledger_client.take(worker)
    assert again.key == "k"
    assert await ledger_client.settle(completed(run)) == [SettleResult.LOST]
    assert await ledger_client.settle(completed(again)) == [SettleResult.DONE]


async def test_a_manual_lease_can_be_extended(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    hand, _ = await claim(ledger_client, "k")
    end_lease(ledger_client, hand)
    await ledger_client.ledger.tasks.renew_manual_leases([hand], LEASE_MS)
    assert ledger_client.sweep() == 0


async def test_a_caller_that_has_a_manual_run_is_not_in_the_list_of_workers(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k")
    await claim(ledger_client, "k")
    assert [row.id for row in await ledger_client.ledger.fleet.workers()] == [worker]


async def test_the_sweep_forgets_manual_leases_that_have_ended(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k")
    hand, run = await claim(ledger_client, "k")
    await ledger_client.settle(completed(run))
    end_lease(ledger_client, hand)
    ledger_client.sweep()
    assert not ledger_client.client.exists(ledger_client.ledger.keys.key("manual-leases"))
