"""Calls that wait to be sent, and their copies: each becomes one task."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from docket import Disposition, Docket, TaskCall, Worker
from docket.execution.task_call import FRESH, GIVEN, SENT, THIS_PROCESS, Mark
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT

COPIES: dict[str, Callable[[TaskCall], TaskCall]] = {
    "copied": copy.copy,
    "deeply copied": copy.deepcopy,
    "pickled": lambda call: pickle.loads(pickle.dumps(call)),
    "replaced": lambda call: dataclasses.replace(call, seed=False),
    "from its fields": lambda call: TaskCall(**dataclasses.asdict(call)),
    "from its values": lambda call: TaskCall(*dataclasses.astuple(call)),
    "from pickled fields": lambda call: TaskCall(**pickle.loads(pickle.dumps(dataclasses.asdict(call)))),
}
began: list[str] = []


gates: dict[str, asyncio.Event] = {}


async def work(name: str = "") -> None:
    began.append(name)


async def hold(name: str) -> None:
    began.append(name)
    await gates[name].wait()


@pytest.mark.parametrize("is_copy_first", [False, True])
@pytest.mark.parametrize("how", COPIES)
async def test_a_call_and_its_copy_are_one_task(docket: Docket, how: str, is_copy_first: bool) -> None:
    docket.register(hold)
    name = f"{how} {is_copy_first}"
    gates[name] = asyncio.Event()
    call = docket.call(hold)(name)
    other = COPIES[how](call)
    assert other == call
    first, second = (other, call) if is_copy_first else (call, other)
    async with worker_at_work(docket):
        (execution,) = await docket.add_many([first])
        assert execution.disposition is Disposition.SCHEDULED
        (again,) = await docket.add_many([second])
        assert again.disposition is Disposition.ALREADY_SCHEDULED
        gates[name].set()
        await execution.get_result(timeout=WAIT_LIMIT)
    assert began.count(name) == 1


def test_only_one_of_a_call_and_its_copies_has_a_fresh_key(docket: Docket) -> None:
    docket.register(work)
    for how, make in COPIES.items():
        call = docket.call(work)()
        other = make(call)
        uses = [other.spend_key(), call.spend_key()]
        assert uses.count(FRESH) <= 1, (how, uses)
        if how.startswith("from"):
            assert uses == [SENT, FRESH], how
    copied = dataclasses.replace(docket.call(work)(), key="mine")
    assert copied.spend_key() is GIVEN


def test_a_copy_of_a_mark_is_not_fresh() -> None:
    mark = Mark(bytearray(b"\x01"))
    assert copy.deepcopy(mark).shared == pickle.loads(pickle.dumps(mark)).shared == b""


class Labelled(TaskCall):
    def __init__(self, *args: Any, label: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "label", label)


def test_copies_of_a_subclass_keep_its_type_and_fields(docket: Docket) -> None:
    docket.register(work)
    call = docket.call(work)("x")
    labelled: Any = Labelled(*dataclasses.astuple(call), label="urgent")
    for make in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        other: Any = make(labelled)
        assert (type(other), other.label, other.args) == (Labelled, "urgent", ("x",))


def test_a_call_can_be_referred_to_weakly_and_not_changed(docket: Docket) -> None:
    docket.register(work)
    call = docket.call(work)()
    assert weakref.ref(call)() is call
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.key = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_after_very_many_forks_no_key_counts_as_fresh(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    docket.register(work)
    before = docket.call(work)()
    for name in ("byte", "mark"):
        monkeypatch.setattr(THIS_PROCESS, name, getattr(THIS_PROCESS, name))
    for _ in range(300):
        THIS_PROCESS.begin()
    assert docket.call(work)().spend_key() is SENT
    assert before.spend_key() is SENT


async def test_calls_that_are_looked_up_run_once(docket: Docket, worker: Worker) -> None:
    docket.register(work)
    call = docket.call(work)("looked up")
    assert call.spend_key() is FRESH
    await docket.add_many([call])
    await worker.run_until_finished()
    assert began.count("looked up") == 1
