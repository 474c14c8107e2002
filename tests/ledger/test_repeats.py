"""What a call looks like when it is sent again after a failure, and requests that overtake each
other."""

import asyncio
from collections.abc import Sequence

import pytest

from docket.errors import ServerUnreachable
from docket.ledger import EnqueueResult, NewTask
from docket.model.states import ExecutionState
from docket.repeater import Repeater
from docket.storage.records import name_in_record

from .ledger_client import CALL, LedgerClient, completed

FIFTEEN_MINUTES = 900_000


async def connected() -> None: ...


@pytest.mark.parametrize("maybe_stored", [False, True], ids=["not sent", "answer lost"])
async def test_a_made_up_key_is_looked_up_when_its_call_is_sent_again(maybe_stored: bool) -> None:
    """Meanwhile the caller may have given up and sent the same call in another batch."""
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
    assert sent == [(False, maybe_stored)]


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


async def bulk(ledger_client: LedgerClient, *keys: str) -> list[str]:
    """Sends calls as `add_many` does for the first time. Returns the keys that were stored before."""
    end = name_in_record("f") + CALL
    values = [value for key in keys for value in (key.encode(), -1.0, end)]
    _, stored_before = await ledger_client.ledger.enqueue_new(values)
    return [keys[at] for at in stored_before]


async def test_a_first_request_that_arrives_after_a_repeat_stores_nothing(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    (repeated, _) = await ledger_client.add("k", "other", unanswered=True)
    (late,) = await ledger_client.add("k", fresh=True)
    (bulk_late,) = await bulk(ledger_client, "new", "k")

    assert repeated.scheduled
    assert not late.scheduled
    assert bulk_late == "k"
    runs = await ledger_client.take(worker, 5)
    assert [run.key for run in runs] == ["k", "other", "new"]
    ledger_client.checked_state()


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["finished", "forgotten"])
async def test_the_same_after_the_task_has_ended(ledger_client: LedgerClient, is_forgotten: bool) -> None:
    worker = await ledger_client.hire()
    await ledger_client.add("k", unanswered=True)
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(completed(run))
    if is_forgotten:
        ledger_client.client.delete(ledger_client.ledger.keys.named("runs", "k"))

    (late,) = await ledger_client.add("k", fresh=True)
    (repeat,) = await ledger_client.add("k", unanswered=True)

    assert (late.scheduled, repeat.scheduled) == (False, True)
    assert await bulk(ledger_client, "k") == ["k"]
    assert await ledger_client.ledger.unfinished() == 0


async def test_a_call_that_a_caller_sends_again_counts_for_its_first_request(ledger_client: LedgerClient) -> None:
    await ledger_client.add("k", is_repeat=True)

    assert await bulk(ledger_client, "k") == ["k"]
    assert await ledger_client.ledger.unfinished() == 1


async def test_a_call_that_has_ended_may_be_sent_again_by_its_caller(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for _ in range(3):
        (result,) = await ledger_client.add("k", is_repeat=True)
        assert result.scheduled
        (run,) = await ledger_client.take(worker)
        await ledger_client.settle(completed(run))


async def test_notes_of_repeats_end_by_themselves(ledger_client: LedgerClient) -> None:
    client, name = ledger_client.client, ledger_client.ledger.keys.key("repeated")
    await ledger_client.add("k", unanswered=True)
    assert 3_590_000 < client.pttl(name) <= 3_600_000
    client.zadd(name, {"k": client.zscore(name, "k") - 3_600_001, "another": client.zscore(name, "k") - 3_599_000})

    await ledger_client.add("k2", unanswered=True)

    assert client.zrange(name, 0, -1) == [b"another", b"k2"]


async def test_there_are_not_too_many_notes(ledger_client: LedgerClient) -> None:
    client, name = ledger_client.client, ledger_client.ledger.keys.key("repeated")
    await ledger_client.add("k", unanswered=True)
    now = client.zscore(name, "k")
    client.zadd(name, {str(number): now - 1 for number in range(100_000)})

    await ledger_client.add("k2", unanswered=True)

    assert client.zcard(name) == 100_000
    assert client.zscore(name, "k2") is not None
