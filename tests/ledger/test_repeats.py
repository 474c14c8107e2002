"""What a call looks like when it is sent again after a failure, and requests that overtake each
other."""

import asyncio
from collections.abc import Sequence

import pytest

from docket.durability import Repeater
from docket.errors import ServerUnreachable
from docket.ledger import EnqueueResult, NewTask
from docket.ledger.payloads import call_payload
from docket.model.states import ExecutionState
from docket.storage.records import read_task
from tests.payloads import decode_call, encode_call

from .ledger_client import CALL, LedgerClient, completed, generated_key, new_call

FIFTEEN_MINUTES = 900_000


async def connected() -> None: ...


@pytest.mark.parametrize("maybe_stored", [False, True], ids=["not sent", "answer lost"])
async def test_a_generated_key_is_looked_up_when_its_call_may_be_stored(maybe_stored: bool) -> None:
    """Otherwise the key is still fresh: the next attempt, too, may arrive after its own repeat."""
    error = ServerUnreachable("gone")
    error.maybe_stored = maybe_stored
    sent: list[tuple[bool, bool]] = []

    async def send(new_tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        sent.extend((new_task.fresh, new_task.unanswered) for new_task in new_tasks)
        return [EnqueueResult(True, 1, 0, ExecutionState.QUEUED, False, False) for _ in new_tasks]

    (result,) = await Repeater(2.0, FIFTEEN_MINUTES, connected).repeat(
        send, [NewTask("k", "work", b"", fresh=True)], error
    )

    assert isinstance(result, EnqueueResult)
    assert sent == [(not maybe_stored, maybe_stored)]


async def test_nothing_is_sent_without_time_for_the_answer() -> None:
    """An attempt that is cut off leaves open whether the task is stored. The refusals before it do
    not."""
    sent: list[str] = []

    async def connect_slowly() -> None:
        await asyncio.sleep(0.7)

    async def send(new_tasks: Sequence[NewTask]) -> list[EnqueueResult]:
        sent.extend(task.key for task in new_tasks)
        raise ServerUnreachable("the slot moves")

    (answer,) = await Repeater(0.8, FIFTEEN_MINUTES, connect_slowly).repeat(
        send, [NewTask("k", "work", b"")], ServerUnreachable("the slot moves")
    )

    assert isinstance(answer, ServerUnreachable)
    assert not answer.maybe_stored
    assert not sent


K, NEW = generated_key(1), generated_key(2)


async def bulk(ledger_client: LedgerClient, *keys: str) -> list[str]:
    """Sends calls as `add_many` does for the first
    time. Returns the keys that were stored before."""
    values = [value for key in keys for value in new_call(key, -1.0, CALL)]
    _, stored_before = await ledger_client.ledger.tasks.enqueue_new(values)
    return [keys[at] for at in stored_before]


async def test_a_first_request_that_arrives_after_a_repeat_stores_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    (repeated, _) = await ledger_client.add(K, "other", unanswered=True)
    (late,) = await ledger_client.add(K, fresh=True)
    (bulk_late,) = await bulk(ledger_client, NEW, K)

    assert repeated.scheduled
    assert not late.scheduled
    assert bulk_late == K
    runs = await ledger_client.take(worker, 5)
    assert [run.key for run in runs] == [K, "other", NEW]
    ledger_client.checked_state()


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["finished", "forgotten"])
async def test_the_same_after_the_task_has_ended(ledger_client: LedgerClient, is_forgotten: bool) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(K, unanswered=True)
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))
    if is_forgotten:
        ledger_client.client.delete(ledger_client.ledger.keys.named("runs", K))

    (late,) = await ledger_client.add(K, fresh=True)
    (repeat,) = await ledger_client.add(K, unanswered=True)

    assert (late.scheduled, repeat.scheduled) == (False, True)
    assert await bulk(ledger_client, K) == [K]
    assert await ledger_client.ledger.queries.unfinished() == 0


async def test_a_call_that_a_caller_sends_again_counts_for_its_first_request(ledger_client: LedgerClient) -> None:
    await ledger_client.add(K, is_repeat=True)

    assert await bulk(ledger_client, K) == [K]
    assert await ledger_client.ledger.queries.unfinished() == 1


async def test_a_call_that_has_ended_may_be_sent_again_by_its_caller(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for _ in range(3):
        (result,) = await ledger_client.add(K, is_repeat=True)
        assert result.scheduled
        (run,) = await ledger_client.take(worker)
        await ledger_client.settle(completed(run))


@pytest.mark.parametrize("late", ["add", "replace"])
async def test_a_replacement_is_not_overwritten_by_an_earlier_request(ledger_client: LedgerClient, late: str) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add(K, call=encode_call(("later",), {}), replace=True, is_repeat=True)

    (result,) = await ledger_client.add(K, fresh=True, replace=late == "replace")

    assert not result.scheduled
    (run,) = await ledger_client.take(worker, 5)
    assert decode_call(read_task(run.record).call)[0] == ("later",)


async def test_a_call_without_its_payload_leaves_no_note(ledger_client: LedgerClient) -> None:
    """A note says that the task is stored."""
    payload = call_payload(b"x" * 100_000)
    lost = NewTask(K, "f", payload.reference, payload=payload, unanswered=True)
    (missing,) = await ledger_client.ledger.tasks.enqueue([lost])
    await ledger_client.ledger.payloads.store(payload)
    (stored,) = await ledger_client.ledger.tasks.enqueue([lost])

    assert (missing.payload_missing, stored.scheduled) == (True, True)
    assert await ledger_client.ledger.queries.unfinished() == 1


async def test_notes_of_another_type_are_found_before_anything_is_stored(ledger_client: LedgerClient) -> None:
    """Otherwise the script, which runs again in its careful form, would store the tasks twice."""
    client, name = ledger_client.client, ledger_client.ledger.keys.key("repeated")
    client.set(name, "damaged")

    await ledger_client.add(K, is_repeat=True)

    assert len(ledger_client.checked_state().streams["stream"].entries) == 1
    assert client.zscore(name, K) is not None


async def test_notes_of_repeats_end_an_hour_after_the_last(ledger_client: LedgerClient) -> None:
    client, name = ledger_client.client, ledger_client.ledger.keys.key("repeated")
    await ledger_client.add(K, unanswered=True)
    client.pexpire(name, 1000)

    await ledger_client.add("k2", unanswered=True)

    assert 3_590_000 < client.pttl(name) <= 3_600_000


@pytest.mark.parametrize("clock", [-3_600_000, 3_600_000], ids=["set back", "set forward"])
async def test_the_newest_notes_stay_if_there_are_many(ledger_client: LedgerClient, clock: int) -> None:
    client, name = ledger_client.client, ledger_client.ledger.keys.key("repeated")
    await ledger_client.add(K, unanswered=True)
    then = client.zscore(name, K) - clock
    client.zadd(name, {str(number): then for number in range(100_000)})

    await ledger_client.add("k2", unanswered=True)

    assert client.zcard(name) == 100_000
    assert client.zscore(name, "k2") is not None
