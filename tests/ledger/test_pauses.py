"""Tasks that a pause holds, script by script (docs/design/pause.md)."""

from __future__ import annotations

from docket.codec.proofs import proven_body
from docket.ledger import Delivery, SettleResult, hold, requeue
from docket.ledger.rules import (
    WHOLE_DOCKET,
    function_rule,
)
from docket.storage.keys import text_bytes
from docket.storage.schema.locations import HELD, IN_FRONT
from tests.waiting import SECONDS

from .hostile import hostile_keys
from .ledger_client import LedgerClient, completed

DONE, KEPT, LOST, CANCELLED = SettleResult.DONE, SettleResult.KEPT, SettleResult.LOST, SettleResult.CANCELLED
F, ARGUMENT = function_rule("f"), "a" * 40


async def pause(ledger_client: LedgerClient, id: str = F) -> int:
    """Returns the epoch of the pause."""
    stored = await ledger_client.ledger.pauses.store(id, b"rule")
    assert stored is not None
    return stored.epoch


async def keys(ledger_client: LedgerClient, worker: str, count: int = 100) -> list[str]:
    return [run.key for run in await ledger_client.take(worker, count)]


async def test_a_claim_holds_the_tasks_of_a_paused_function(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a", "b")
    await ledger_client.add("c", function="g")
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == ["c"]
    state = ledger_client.checked_state()
    assert state.held == {F: ["a", "b"]}
    assert {key: task.location for key, task in state.tasks.items() if task.location == HELD}.keys() == {"a", "b"}
    assert await ledger_client.ledger.pauses.resume(F) == 2
    assert await keys(ledger_client, worker) == ["a", "b"]
    assert ledger_client.checked_state().pauses == {}


async def test_the_order_does_not_depend_on_the_order_of_claims(ledger_client: LedgerClient) -> None:
    """Two workers read before the pause and claim after it, the second one first."""
    one, other = await ledger_client.hire(), await ledger_client.hire()
    await ledger_client.add(*"abcdef")
    first, second = ledger_client.read(one, 3), ledger_client.read(other, 3)
    await pause(ledger_client)
    assert await ledger_client.claim(other, second) == []
    assert await ledger_client.claim(one, first) == []
    assert ledger_client.checked_state().held == {F: list("abcdef")}


async def test_thousands_of_entries_of_one_millisecond_keep_their_order(ledger_client: LedgerClient) -> None:
    """A server whose clock was set back counts up the second part of the entry id."""
    worker, ledger = await ledger_client.hire(), ledger_client.ledger
    ledger_client.client.xadd(ledger.keys.stream, {"x": "y"}, id="9999999999999-0")
    await ledger_client.add(*(str(n) for n in range(30)))
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == []
    assert ledger_client.stored_state().held == {F: [str(n) for n in range(30)]}


async def test_tasks_that_were_put_back_go_first(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "old")
    await ledger_client.add("a", "b")
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == []
    assert await ledger_client.settle(requeue(run.key, run.epoch)) == [DONE]
    assert await keys(ledger_client, worker) == []
    assert ledger_client.checked_state().held == {F: ["old", "a", "b"]}


async def test_tasks_that_are_held_again_keep_their_place_before_the_others(ledger_client: LedgerClient) -> None:
    """All of them were put back, so all have positions of the front stream."""
    worker = await ledger_client.hire()
    await ledger_client.add(*"abcdef")
    runs = await ledger_client.take(worker)
    await ledger_client.settle(*(requeue(run.key, run.epoch) for run in runs))
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == []
    for count in (2, 3):
        assert await ledger_client.ledger.pauses.resume(F, count) == 6
        await pause(ledger_client)
        assert await keys(ledger_client, worker) == []
        assert ledger_client.checked_state().held == {F: list("abcdef")}


async def test_newcomers_wait_behind_the_tasks_that_go_on(ledger_client: LedgerClient) -> None:
    worker, ledger = await ledger_client.hire(), ledger_client.ledger
    await ledger_client.add(*"abcd")
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == []
    assert await ledger.pauses.resume(F, 2) == 4
    await ledger_client.add("e")
    assert (await ledger.pauses.release(F, 2)).moved == 0, "two wait on the front stream"
    runs = await ledger_client.take(worker)
    assert [run.key for run in runs] == ["a", "b"]
    assert ledger_client.checked_state().held == {F: ["c", "d", "e"]}
    assert (await ledger.pauses.release(F, 0)) == (0, 3, False, False)
    assert (await ledger.pauses.release(F, 2)) == (2, 1, True, False)
    assert await keys(ledger_client, worker) == ["c", "d"]
    assert (await ledger.pauses.release(F, 2)) == (1, 0, True, False)
    await ledger_client.add("f")
    assert await keys(ledger_client, worker) == ["e", "f"], "the pause is gone"
    assert (await ledger.pauses.release(F, 2)).left is None


async def test_a_run_holds_its_task_for_a_pause_that_compares_arguments(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a", "b")
    await pause(ledger_client, ARGUMENT)
    runs = await ledger_client.take(worker)
    # The answers come in any order.
    assert await ledger_client.settle(*(hold(run.key, run.epoch, ARGUMENT) for run in reversed(runs))) == [DONE] * 2
    assert ledger_client.checked_state().held == {ARGUMENT: ["a", "b"]}
    assert await ledger_client.settle(hold("a", runs[0].epoch, ARGUMENT)) == [LOST], "the epoch fences it"
    assert await ledger_client.ledger.pauses.resume(ARGUMENT) == 2
    assert await keys(ledger_client, worker) == ["a", "b"]


async def test_a_run_goes_on_if_its_pause_is_over(ledger_client: LedgerClient) -> None:
    worker, ledger = await ledger_client.hire(), ledger_client.ledger
    await pause(ledger_client, ARGUMENT)
    held = [await ledger_client.start(worker, "a"), await ledger_client.start(worker, "b")]
    run = await ledger_client.start(worker, "c")
    await ledger_client.settle(*(hold(run.key, run.epoch, ARGUMENT) for run in held))
    await ledger.pauses.resume(ARGUMENT, 1)
    (released,) = await ledger_client.take(worker)
    assert await ledger_client.settle(hold(released.key, released.epoch, ARGUMENT)) == [KEPT], "it was just let go"
    assert await ledger_client.settle(hold(run.key, run.epoch, ARGUMENT)) == [DONE], "it waits behind the others"
    assert ledger_client.checked_state().held == {ARGUMENT: ["b", "c"]}
    while (await ledger.pauses.release(ARGUMENT)).left is not None:
        for run in await ledger_client.take(worker):
            assert await ledger_client.settle(hold(run.key, run.epoch, ARGUMENT)) == [KEPT]
    assert set(ledger_client.checked_state().running) == {"a", "b", "c"}


async def test_a_cancel_is_not_lost_with_a_hold(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await pause(ledger_client, ARGUMENT)
    run = await ledger_client.start(worker, "a")
    assert await ledger_client.ledger.tasks.cancel("a") == 2
    assert await ledger_client.settle(hold("a", run.epoch, ARGUMENT)) == [CANCELLED]
    assert "a" in ledger_client.checked_state().finished


async def test_claims_report_the_version_of_the_pauses_that_compare_arguments(ledger_client: LedgerClient) -> None:
    worker, seen = await ledger_client.hire(), list[bytes]()
    ledger_client.ledger.pause_listeners.add(seen.append)
    await pause(ledger_client)
    await ledger_client.start(worker, "a", function="g")
    assert seen == []
    versions = set[bytes]()
    for id in (ARGUMENT, "b" * 40):
        await pause(ledger_client, id)
        versions.add((await ledger_client.ledger.pauses.read()).version)
        await ledger_client.start(worker, id, function="g")
    assert seen == [*dict.fromkeys(seen)]
    assert set(seen) == versions
    await ledger_client.ledger.pauses.resume(ARGUMENT)
    await ledger_client.ledger.pauses.resume("b" * 40)
    await pause(ledger_client, ARGUMENT)
    await ledger_client.start(worker, "c", function="g")
    assert len(set(seen)) == 3, "the same rule again is another version"


async def test_a_pause_has_an_epoch_of_its_own(ledger_client: LedgerClient) -> None:
    """Also if epochs are far before the clock, as after the clock was set back."""
    worker = await ledger_client.hire()
    ledger_client.client.set(ledger_client.ledger.keys.key("epoch"), 8 * 10**15)
    before = await ledger_client.start(worker, "a")
    epoch = await pause(ledger_client, ARGUMENT)
    after = await ledger_client.start(worker, "b")
    assert before.epoch < epoch < after.epoch


async def test_a_woken_task_that_is_held_gives_its_slot_to_the_next(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire("f", "g")
    holder = await ledger_client.start(worker, "holder", function="g")
    assert await ledger_client.acquire("holder", holder.epoch, [("L", 1)]) == 1
    for key, function in (("a", "f"), ("b", "g")):
        run = await ledger_client.start(worker, key, function=function)
        assert await ledger_client.acquire(key, run.epoch, [("L", 1)]) == 2
    await pause(ledger_client)
    await ledger_client.settle(completed(holder))
    assert await keys(ledger_client, worker) == ["b"]
    assert ledger_client.checked_state().held == {F: ["a"]}


async def test_a_task_behind_many_held_ones_is_found_in_one_request(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(*(str(n) for n in range(199)))
    await ledger_client.add("z", function="g")
    await pause(ledger_client)
    assert await keys(ledger_client, worker, 25) == ["z"]


async def test_nothing_is_delivered_directly_while_there_is_a_pause(ledger_client: LedgerClient) -> None:
    worker, ledger = await ledger_client.hire(), ledger_client.ledger
    listener = ledger_client.client.pubsub()
    listener.subscribe(ledger.keys.delivery_channel(worker))
    listener.get_message(timeout=SECONDS)
    await pause(ledger_client, ARGUMENT)
    await ledger.tasks.settle([], None)
    ledger_client.client.zadd(ledger.keys.offers, {text_bytes(worker): 9e15})
    ledger_client.client.hset(ledger.keys.key("offer-secrets"), text_bytes(worker), b"s" * 16)
    await ledger_client.add("a")
    assert ledger_client.stored_state().running == {}
    assert ledger_client.client.zcard(ledger.keys.offers) == 1, "the offer stays"
    await ledger.pauses.resume(ARGUMENT)
    await ledger_client.add("b")
    assert set(ledger_client.stored_state().running) == {"a"}


async def test_workers_are_told_that_the_pauses_have_changed(ledger_client: LedgerClient) -> None:
    await ledger_client.hire()
    keys = ledger_client.ledger.keys
    listener, secret = ledger_client.client.pubsub(), ledger_client.client.get(keys.key("secret"))
    listener.subscribe(keys.pause_channel)
    listener.get_message(timeout=SECONDS)
    await pause(ledger_client)
    await ledger_client.ledger.pauses.resume(F)
    for _ in range(2):
        message = listener.get_message(timeout=SECONDS)["data"]
        assert proven_body(secret, b"P", b"pauses", b"", message) == b""


async def test_any_key_can_be_held(ledger_client: LedgerClient) -> None:
    worker, hostile = await ledger_client.hire(), hostile_keys()
    await ledger_client.add(*hostile)
    await pause(ledger_client)
    assert await keys(ledger_client, worker) == []
    assert ledger_client.checked_state().held == {F: hostile}
    for key in hostile[:50]:
        assert await ledger_client.ledger.tasks.cancel(key) == 1
    await ledger_client.ledger.pauses.resume(F, 1000)
    assert await keys(ledger_client, worker, 300) == hostile[50:]


async def test_any_function_can_be_paused(ledger_client: LedgerClient) -> None:
    worker, hostile = await ledger_client.hire(), hostile_keys()[:100]
    for name in hostile:
        await ledger_client.add(name, function=name)
        await pause(ledger_client, function_rule(name))
    assert await keys(ledger_client, worker) == []
    assert ledger_client.checked_state().held == {function_rule(name): [name] for name in hostile}
    stored = (await ledger_client.ledger.pauses.read()).pauses
    assert [(rule.id, rule.held) for rule in stored] == [(function_rule(name), 1) for name in hostile]


async def test_a_sweep_finds_tasks_whose_rule_somebody_deleted(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("a", "b")
    await pause(ledger_client, WHOLE_DOCKET)
    assert await keys(ledger_client, worker) == []
    assert ledger_client.sweep() == 0
    ledger_client.client.delete(ledger_client.ledger.keys.key("pauses"))
    assert ledger_client.sweep() == 2
    state = ledger_client.checked_state()
    assert (state.held, {task.location for task in state.tasks.values()}) == ({}, {IN_FRONT})
    assert await keys(ledger_client, worker) == ["a", "b"]


async def test_damaged_rules_stop_nobody(ledger_client: LedgerClient) -> None:
    worker, ledger = await ledger_client.hire(), ledger_client.ledger
    pauses = ledger.keys.key("pauses")
    ledger_client.client.hset(pauses, mapping={"x": b"", "=f": b"", "*": "x", "round": "many", ARGUMENT: "p-5"})
    await ledger_client.add("a")
    assert await keys(ledger_client, worker) == ["a"]
    ledger_client.client.hset(pauses, "*", "p")
    await ledger_client.add("b")
    assert await keys(ledger_client, worker) == []
    assert [stored.epoch for stored in (await ledger.pauses.read()).pauses] == [0] * 4
    for stored in (await ledger.pauses.read()).pauses:
        await ledger.pauses.store(stored.id, b"rule")
        await ledger.pauses.resume(stored.id)
    assert isinstance((await ledger_client.take(worker))[0], Delivery)
