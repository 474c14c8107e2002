"""Fast paths of a worker and of a caller, and the general paths that mean the same
(docs/design/performance.md, Twins)."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docket import CurrentExecution, Depends, Docket, Execution, Retry, TaskCall, TaskKey
from docket.codec import Keyring, Payloads
from docket.codec.pickle_codec import PickleCodec
from docket.dependencies import TaskOutcome
from docket.execution.task_call import FRESH, GIVEN, Mark, new_call
from docket.ledger import complete, finish
from docket.ledger.endings import read_ending
from docket.model.states import ExecutionState
from docket.worker.running.reporter import Reporter
from tests.running import run_everything

from .test_log_records import OF_ITS_OWN, info

__all__ = ["info"]

PICKLE = PickleCodec()
# How a pickle begins, which a short call is stored without.
BEGINNING, LONGEST_SHORT = 11, 1024
PAYLOADS = {"plain": Payloads(), "json": Payloads("json"), "signed": Payloads(keyring=Keyring({"a": b"1" * 32}))}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
arguments = st.lists(values, max_size=3).map(tuple)
keywords = st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), values, max_size=3)
traces = st.none() | st.just({"traceparent": "00-1-2-01"})


def work(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize("kind", PAYLOADS)
@given(args=arguments, kwargs=keywords, trace=traces, shown=st.none() | st.just({"name": "Ada"}))
def test_a_call_sealer_makes_the_bytes_of_seal_call(
    kind: str, args: tuple[Any, ...], kwargs: dict[str, Any], trace: dict[str, str] | None, shown: dict[str, str] | None
) -> None:
    payloads = PAYLOADS[kind]
    seal = payloads.call_sealer("work", work, trace, b"before", None if shown is None else lambda args, kwargs: shown)
    assert seal("key", args, kwargs) == b"before" + payloads.seal_call("key", "work", work, args, kwargs, trace, shown)


@given(args=arguments, kwargs=keywords)
def test_a_call_is_the_pickle_of_any_value(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call, value = PICKLE.encode_call(None, args, kwargs), PICKLE.encode_result(None, (args, kwargs))
    assert call == (value if len(value) >= LONGEST_SHORT else value[BEGINNING:])


@pytest.mark.parametrize("is_generated", [True, False])
def test_a_new_call_is_a_task_call(is_generated: bool) -> None:
    given = (work, (1,), {"a": 2}, "key", datetime(2026, 1, 1, tzinfo=UTC), "work")
    fast = new_call(*given, is_generated)
    mark = None if fast.shared_mark is None else Mark(bytearray(fast.shared_mark))
    general = TaskCall(*given, generated_key="key" if is_generated else None, mark=mark)
    assert type(fast) is TaskCall
    assert (fast, repr(fast), hash(fast.key)) == (general, repr(general), hash(general.key))
    for one in dataclasses.fields(TaskCall):
        if one.name != "mark":
            assert getattr(fast, one.name) == getattr(general, one.name), one.name
    assert fast.spend_key() is general.spend_key() is (FRESH if is_generated else GIVEN)


def test_a_completed_item_is_a_finish_of_a_completed_run() -> None:
    whole = complete("k", 7, b"tail").row.whole()  # pyright: ignore[reportAttributeAccessIssue]
    usual = finish("k", 7, ExecutionState.COMPLETED, 1, b"tail", "", has_progress=False).row
    # The script knows both.
    assert whole == usual._replace(ttl=False, event=False)  # pyright: ignore[reportCallIssue]


async def nothing() -> None: ...


async def number() -> int:
    return 7


async def fails() -> None:
    raise ValueError("smoke")


async def names_itself(key: str = TaskKey(), execution: Execution = CurrentExecution()) -> str:
    return f"{key == execution.key} {execution.attempt} {execution.function_name}"


async def is_not_retried(retry: Retry = Retry(attempts=1)) -> str:
    return f"{retry.attempt} of {retry.attempts}"


def lamp() -> str:
    return "on"


@pytest.mark.parametrize("function", [nothing, number, fails, names_itself, is_not_retried])
async def test_a_run_ends_alike_with_and_without_a_resolution(docket: Docket, function: Callable[..., Any]) -> None:
    """Dependencies of the worker make every run a general one."""
    endings: list[Any] = []
    for options in ({}, {"dependencies": {"lamp": Depends(lamp)}}):
        execution = await docket.add(function)()
        await run_everything(docket, **options)
        endings.append(await ending_of(docket, execution))
    assert endings[0] == endings[1]


async def asks_nobody() -> None: ...


async def asks_its_retry(retry: Retry = Retry(attempts=1)) -> None: ...


async def test_a_run_that_returned_none_ends_alike_with_and_without_a_decision(docket: Docket) -> None:
    endings: list[Any] = []
    for function in (asks_nobody, asks_its_retry):
        execution = await docket.add(function)()
        await run_everything(docket)
        endings.append(await ending_of(docket, execution))
    assert endings[0] == endings[1]


async def ending_of(docket: Docket, execution: Any) -> Any:
    """All that is stored of an end, without its times, and what its result is."""
    finished = (await docket.ledger.tasks.get(execution.key)).finished
    assert finished is not None
    stored = read_ending(finished.tail)
    await execution.sync()
    try:
        result = await execution.get_result()
    except Exception as error:
        result = repr(error)
    place = (finished.state, finished.progress, finished.task.flags, finished.task.attempt)
    return place, dataclasses.replace(stored, worker=""), result


async def test_the_lines_of_a_success_are_those_of_any_end(
    docket: Docket, info: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = Reporter.log_success

    def both(self: Reporter, execution: Any, seconds: float) -> None:
        short(self, execution, seconds)
        self.log_end(execution, TaskOutcome(timedelta(seconds=seconds), None, None), False)
        execution.start_line = None
        short(self, execution, seconds)

    monkeypatch.setattr(Reporter, "log_success", both)
    await docket.add(nothing, key="plain")()
    await docket.add(nothing, key="later", when=datetime.now(UTC) + timedelta(milliseconds=50))()
    await run_everything(docket)
    lines = [record for record in info.records if record.getMessage().startswith("↩")]
    assert len(lines) == 6
    for at in (0, 3):
        fast, general, without_start_line = (labels(record) for record in lines[at : at + 3])
        assert fast == general == without_start_line


def labels(record: logging.LogRecord) -> dict[str, Any]:
    kept = {name: value for name, value in record.__dict__.items() if name not in OF_ITS_OWN | {"message", "duration"}}
    return {**kept, "line": record.getMessage()}
