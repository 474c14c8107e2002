"""The assertions for users' tests: they hold when they
should, and say what is there when they do not."""

from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, Worker
from docket.testing import assert_no_tasks, assert_task_count, assert_task_not_scheduled, assert_task_scheduled


async def send(customer: str, amount: int = 10) -> None: ...


async def refund(customer: str) -> None: ...


async def test_a_scheduled_task_is_found_by_function_name_arguments_and_key(docket: Docket) -> None:
    await docket.add(send, key="k")("ann", amount=5)

    await assert_task_scheduled(docket, send)
    await assert_task_scheduled(docket, "send")
    await assert_task_scheduled(docket, send, args=("ann",))
    await assert_task_scheduled(docket, send, kwargs={"amount": 5})
    await assert_task_scheduled(docket, send, args=("ann",), kwargs={"amount": 5}, key="k")


@pytest.mark.parametrize(
    "wanted",
    [
        {"args": ("bob",)},
        {"args": ()},
        {"kwargs": {"amount": 5, "note": ""}},
        {"kwargs": {"amount": 6}},
        {"key": "other"},
    ],
)
async def test_what_does_not_fit_is_not_found(docket: Docket, wanted: dict[str, Any]) -> None:
    await docket.add(send, key="k")("ann", amount=5)

    with pytest.raises(AssertionError):
        await assert_task_scheduled(docket, send, **wanted)
    await assert_task_not_scheduled(docket, send, **wanted)


async def test_a_task_in_the_future_is_scheduled_too(docket: Docket) -> None:
    await docket.add(send, when=docket.now() + timedelta(days=1))("ann")

    await assert_task_scheduled(docket, send)


async def test_the_message_shows_what_is_wanted_and_what_is_there(docket: Docket) -> None:
    await docket.add(send, key="first")("ann", amount=5)

    with pytest.raises(AssertionError) as caught:
        await assert_task_scheduled(docket, send, args=("bob",), key="k")

    message = str(caught.value)
    assert "send with args=('bob',), key='k' is not scheduled" in message
    assert "1 task waits on the docket:" in message
    assert "send('ann', amount=5) key='first'" in message


async def test_the_message_of_an_empty_docket(docket: Docket) -> None:
    with pytest.raises(AssertionError, match="send is not scheduled; no task waits on the docket"):
        await assert_task_scheduled(docket, send)


async def test_what_should_not_be_there_is_shown(docket: Docket) -> None:
    await docket.add(send, key="k")("ann")

    await assert_task_not_scheduled(docket, refund)
    with pytest.raises(AssertionError, match=r"send should not be scheduled, but is:\n  - send\('ann'\) key='k'"):
        await assert_task_not_scheduled(docket, send)


async def test_counts_of_one_function_and_of_all(docket: Docket) -> None:
    await assert_task_count(docket, count=0)
    for customer in ("ann", "bob"):
        await docket.add(send)(customer)
    await docket.add(refund)("ann")

    await assert_task_count(docket, send, count=2)
    await assert_task_count(docket, "refund", count=1)
    await assert_task_count(docket, count=3)
    with pytest.raises(AssertionError, match=r"expected 1 task of send, found 2; 3 tasks wait on the docket:"):
        await assert_task_count(docket, send, count=1)
    with pytest.raises(AssertionError, match="expected 5 tasks, found 3"):
        await assert_task_count(docket, count=5)


async def test_no_tasks(docket: Docket, worker: Worker) -> None:
    await assert_no_tasks(docket)
    await docket.add(send)("ann")

    with pytest.raises(AssertionError, match="expected no tasks"):
        await assert_no_tasks(docket)

    await worker.run_until_finished()
    await assert_no_tasks(docket)


async def test_a_long_list_is_cut(docket: Docket) -> None:
    await docket.add_many([docket.call(send)(str(i)) for i in range(500)])

    with pytest.raises(AssertionError, match="… and 480 more") as caught:
        await assert_no_tasks(docket)
    assert len(str(caught.value).splitlines()) == 22


async def test_the_message_about_a_single_task(docket: Docket) -> None:
    await docket.add(send, key="k")("ann")

    with pytest.raises(
        AssertionError, match=r"^expected no tasks; 1 task waits on the docket:\n  - send\('ann'\) key='k'"
    ):
        await assert_no_tasks(docket)


class Awkward:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


async def test_arguments_that_cannot_be_compared_do_not_fit(docket: Docket) -> None:
    await docket.add(send)(Awkward())  # pyright: ignore[reportArgumentType, reportCallIssue]

    await assert_task_not_scheduled(docket, send, args=("ann",))
