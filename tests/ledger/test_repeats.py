"""What a call looks like when it is sent again after a failure."""

import asyncio
from collections.abc import Sequence

import pytest

from docket.errors import ServerUnreachable
from docket.ledger import EnqueueResult, NewTask
from docket.model.states import ExecutionState
from docket.repeater import Repeater

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
