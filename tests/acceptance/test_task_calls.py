"""A call that is sent again: by a caller that repeats after a time-out, or as a copy."""

import asyncio
import copy
import dataclasses
import os
import pickle
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from docket import Disposition, Docket, Execution, TaskCall, Worker
from docket.execution.task_call import KeyUse
from tests.running import run_everything
from tests.times import later, now
from tests.waiting import within


async def noop(*args: object) -> None: ...


def dispositions(executions: list[Execution]) -> set[Disposition]:
    return {execution.disposition for execution in executions}


@pytest.mark.parametrize("key", [None, "given"])
async def test_a_waiting_call_that_is_sent_again_changes_nothing(docket: Docket, key: str | None) -> None:
    call = docket.call(noop, when=later(), key=key)(1)

    first = await docket.add_many([call])
    again = await docket.add_many([call])

    assert dispositions(first) == {Disposition.SCHEDULED}
    assert dispositions(again) == {Disposition.ALREADY_SCHEDULED}
    assert (await docket.snapshot()).total_tasks == 1


@pytest.mark.parametrize("key", [None, "given"])
async def test_a_call_that_is_sent_twice_in_one_batch_is_one_task(docket: Docket, key: str | None) -> None:
    call = docket.call(noop, when=later(), key=key)(1)

    first, second = await docket.add_many([call, call])

    assert (first.disposition, second.disposition) == (Disposition.SCHEDULED, Disposition.ALREADY_SCHEDULED)


async def test_a_running_call_that_is_sent_again_does_not_run_again(docket: Docket, worker: Worker) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        started.set()
        await go_on.wait()

    call = docket.call(work)()
    await docket.add_many([call])
    running = asyncio.create_task(worker.run_until_finished())
    await within(started.wait())
    again = await docket.add_many([call])
    go_on.set()
    await within(running)

    assert dispositions(again) == {Disposition.ALREADY_SCHEDULED}
    assert runs == 1


async def test_a_call_that_is_sent_while_the_first_sending_goes_on_is_one_task(docket: Docket) -> None:
    calls = [docket.call(noop, when=later())(n) for n in range(100)]

    first, second = await asyncio.gather(docket.add_many(calls), docket.add_many(calls))

    # The first sending may arrive last: the server may not know its script yet.
    told = [{one.disposition, other.disposition} for one, other in zip(first, second, strict=True)]
    assert told == [{Disposition.SCHEDULED, Disposition.ALREADY_SCHEDULED}] * 100
    assert (await docket.snapshot()).total_tasks == 100


@pytest.mark.parametrize("copy_first", [False, True])
@pytest.mark.parametrize(
    "copied",
    [dataclasses.replace, copy.copy, copy.deepcopy, lambda call: pickle.loads(pickle.dumps(call))],
    ids=["replace", "copy", "deepcopy", "pickle"],
)
async def test_a_copy_of_a_call_is_the_same_task(
    docket: Docket, copied: Callable[[TaskCall], TaskCall], copy_first: bool
) -> None:
    call = docket.call(noop, when=later())(1)
    twin = copied(call)

    first = await docket.add_many([twin if copy_first else call])
    again = await docket.add_many([call if copy_first else twin])

    assert twin == call
    assert dispositions(first) == {Disposition.SCHEDULED}
    assert dispositions(again) == {Disposition.ALREADY_SCHEDULED}


async def test_a_call_is_fresh_in_one_of_two_forked_processes(docket: Docket) -> None:
    call = docket.call(noop)(1)

    assert use_in_a_fork(call) == KeyUse.SENT.value
    assert call.spend_key() is KeyUse.FRESH


def use_in_a_fork(call: TaskCall) -> str:
    """How a forked process would send the call."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, call.spend_key().value.encode())
        os._exit(0)
    os.waitpid(child, 0)
    use = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    return use


async def test_a_call_that_was_pickled_before_it_is_sent_is_looked_up_and_leaves_no_note(docket: Docket) -> None:
    call = docket.call(noop, when=later())(1)
    twin = pickle.loads(pickle.dumps(call))
    assert [call.spend_key(), twin.spend_key(), call.spend_key()] == [KeyUse.GIVEN] * 3


async def test_a_call_that_was_pickled_after_it_is_sent_is_a_repeat(docket: Docket) -> None:
    call = docket.call(noop, when=later())(1)
    await docket.add_many([call])
    assert pickle.loads(pickle.dumps(call)).spend_key() is KeyUse.SENT


async def test_of_several_threads_one_sends_a_call_first(docket: Docket) -> None:
    for _ in range(50):
        call = docket.call(noop)()
        with ThreadPoolExecutor(8) as pool:
            uses = [done.result() for done in [pool.submit(call.spend_key) for _ in range(8)]]
        assert uses.count(KeyUse.FRESH) == 1


async def test_a_copy_with_another_key_is_judged_by_that_key(docket: Docket) -> None:
    await docket.add(noop, when=later(), key="taken")("first")
    call = docket.call(noop, when=later())("copied")

    taken, free = await docket.add_many([dataclasses.replace(call, key="taken"), dataclasses.replace(call, key="free")])

    assert (taken.disposition, free.disposition) == (Disposition.ALREADY_SCHEDULED, Disposition.SCHEDULED)
    found = await docket.get_execution("taken")
    assert found is not None
    assert found.args == ("first",)


async def test_a_call_cannot_be_changed(docket: Docket) -> None:
    call = docket.call(noop)(1)

    for name in ("function", "args", "kwargs", "key", "when"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(call, name, None)


async def test_an_execution_that_is_scheduled_again_changes_nothing(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())(1)

    assert await execution.schedule() is Disposition.ALREADY_SCHEDULED
    assert (await docket.snapshot()).total_tasks == 1


async def test_a_call_that_has_ended_may_be_sent_again(docket: Docket) -> None:
    call = docket.call(noop)(1)

    await docket.add_many([call])
    await run_everything(docket)
    again = await docket.add_many([call])

    assert dispositions(again) == {Disposition.SCHEDULED}


async def test_the_keys_that_are_made_up_are_different_uuids_that_sort_by_time(docket: Docket) -> None:
    keys: list[str] = []
    for _ in range(3):
        keys += [docket.call(noop)().key for _ in range(500)]
        await asyncio.sleep(0.002)

    found = [uuid.UUID(key) for key in keys]
    assert len(set(keys)) == 1500
    assert {(key.version, key.variant) for key in found} == {(7, uuid.RFC_4122)}
    assert [str(key) for key in found] == keys
    assert max(keys[:500]) < min(keys[500:1000]) <= max(keys[500:1000]) < min(keys[1000:])


async def test_of_several_replacements_of_a_key_each_is_scheduled_and_the_last_counts(docket: Docket) -> None:
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    executions = await docket.replace_many([docket.call(note, when=now(), key="k")(n) for n in range(3)])
    await run_everything(docket)

    assert dispositions(executions) == {Disposition.SCHEDULED}
    assert seen == [2]
