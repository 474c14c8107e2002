"""`Docket(codec="json")`: tasks with typed arguments and results, and no pickle anywhere."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from docket import (
    Disposition,
    Docket,
    ExecutionState,
    Perpetual,
    Retry,
    TaskArgument,
    TaskFailed,
    Unserializable,
)
from docket.storage.records import read_task
from tests.running import run_everything, worker_at_work
from tests.waiting import WAIT_LIMIT, within


@dataclass
class Basket:
    items: dict[str, Decimal]
    at: datetime


class OutOfStock(Exception):
    pass


NOW = datetime(2026, 11, 17, tzinfo=UTC)
BASKET = Basket({"tea": Decimal("2.50")}, NOW)


@pytest.fixture
async def json_docket(name: str, url: str) -> AsyncIterator[Docket]:
    async with Docket(name, url, codec="json", exceptions=[OutOfStock]) as docket:
        yield docket


@pytest.fixture(autouse=True)
def no_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(data: bytes) -> Any:
        raise AssertionError("unpickled")

    monkeypatch.setattr(pickle, "loads", loads)
    monkeypatch.setattr("docket.codec.pickle_codec._loads", loads)


async def checkout(basket: Basket, *, tip: Decimal = Decimal(0)) -> Basket:
    assert isinstance(basket, Basket)
    assert isinstance(tip, Decimal)
    return Basket({**basket.items, "tip": tip}, basket.at + timedelta(hours=1))


async def test_typed_arguments_and_results_go_through_a_worker(json_docket: Docket) -> None:
    execution = await json_docket.add(checkout)(BASKET, tip=Decimal("0.10"))
    record = read_task(await json_docket.server.client.hget(json_docket.keys.tasks, execution.key))
    assert record.call[5:] == b'[[{"items":{"tea":"2.50"},"at":"2026-11-17T00:00:00Z"}],{"tip":"0.10"}]'

    await run_everything(json_docket)
    result = await within(execution.get_result(timeout=WAIT_LIMIT))
    assert result == Basket({"tea": Decimal("2.50"), "tip": Decimal("0.10")}, NOW + timedelta(hours=1))


async def test_another_process_reads_the_same_arguments_and_result(json_docket: Docket) -> None:
    execution = await json_docket.add(checkout)(BASKET)
    async with Docket(json_docket.name, json_docket.url, codec="json") as other:
        other.register(checkout)
        found = await other.get_execution(execution.key)
        assert found is not None
        assert found.args == (BASKET,)
        await run_everything(other)
        assert (await within(found.get_result(timeout=WAIT_LIMIT))).items["tea"] == Decimal("2.50")
        [waiting] = [await other.add(checkout, when=NOW.replace(year=2099))(BASKET)]
        assert [e.args for e in (await other.snapshot()).future] == [(BASKET,)]
        await other.cancel(waiting.key)


async def test_an_argument_that_json_cannot_represent_fails_at_add_by_name(json_docket: Docket) -> None:
    with pytest.raises(Unserializable, match="checkout: argument 'basket', of type dict"):
        await json_docket.add(checkout)({"items": {}, "at": NOW})  # type: ignore[arg-type]
    assert (await json_docket.ledger.queries.census()).unfinished == 0


async def test_a_behaviour_that_is_passed_by_keyword_is_refused_by_name(json_docket: Docket) -> None:
    async def careful(number: int, retry: Retry = Retry(attempts=2)) -> None: ...

    with pytest.raises(Unserializable, match="careful: argument 'retry'"):
        await json_docket.add(careful)(1, retry=Retry(attempts=9))
    assert (await json_docket.add(careful)(1)).disposition is Disposition.SCHEDULED


async def test_exceptions_become_text_unless_they_are_registered(json_docket: Docket) -> None:
    async def fails() -> None:
        raise LookupError("nowhere")

    async def sold_out() -> None:
        raise OutOfStock("tea", 3)

    lost, sold = await json_docket.add(fails)(), await json_docket.add(sold_out)()
    await run_everything(json_docket)
    with pytest.raises(TaskFailed, match="LookupError: nowhere") as failed:
        await within(lost.get_result(timeout=WAIT_LIMIT))
    assert failed.value.type_name == "builtins.LookupError"
    assert "raise LookupError" in (failed.value.traceback or "")
    with pytest.raises(OutOfStock) as raised:
        await within(sold.get_result(timeout=WAIT_LIMIT))
    assert raised.value.args == ("tea", 3)


async def test_a_result_that_json_cannot_represent_fails_the_task(json_docket: Docket) -> None:
    async def now():  # type: ignore[no-untyped-def]
        return NOW

    execution = await json_docket.add(now)()
    await run_everything(json_docket)
    with pytest.raises(Unserializable, match="result of type datetime.*annotate"):
        await within(execution.get_result(timeout=WAIT_LIMIT))


async def test_retries_and_perpetual_tasks_keep_their_types(json_docket: Docket) -> None:
    seen: list[Any] = []

    async def retried(at: datetime, retry: Retry = Retry(attempts=2)) -> None:
        seen.append(at)
        if len(seen) == 1:
            raise LookupError("again")

    async def daily(at: datetime, perpetual: Perpetual = Perpetual()) -> None:
        seen.append(at)
        if at > NOW:
            perpetual.cancel()
        else:
            perpetual.perpetuate(at + timedelta(days=1))

    await json_docket.add(retried)(NOW)
    await run_everything(json_docket)
    await json_docket.add(daily)(NOW)
    await run_everything(json_docket)
    assert seen == [NOW, NOW, NOW, NOW + timedelta(days=1)]


async def test_dependencies_and_strikes_see_typed_arguments(json_docket: Docket) -> None:
    seen: list[Any] = []

    async def send(at: datetime, when: datetime = TaskArgument("at")) -> None:
        seen.append(when)

    json_docket.register(send)
    await json_docket.strike("send", "at", ">", NOW)
    await json_docket.add(send)(NOW)
    struck = await json_docket.add(send)(NOW + timedelta(days=1))
    await run_everything(json_docket)
    assert seen == [NOW]
    assert struck.disposition is Disposition.STRUCK


async def test_a_task_of_an_unknown_function_keeps_its_arguments(json_docket: Docket) -> None:
    async def fallback(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    seen: list[Any] = []
    await json_docket.add(checkout)(BASKET)
    async with Docket(json_docket.name, json_docket.url, codec="json") as other:
        await run_everything(other, fallback_task=fallback)
    assert seen == [(({"items": {"tea": "2.50"}, "at": "2026-11-17T00:00:00Z"},), {})]


async def test_a_pickled_call_is_buried_without_decoding(json_docket: Docket) -> None:
    async with Docket(json_docket.name, json_docket.url) as pickling:
        execution = await pickling.add(checkout)(BASKET)
        json_docket.register(checkout)
        async with worker_at_work(json_docket):
            finished = await json_docket.get_execution(execution.key)
            assert finished is not None
            with pytest.raises(Exception, match="the codec of the payload is 'pickle'"):
                await within(finished.get_result(timeout=WAIT_LIMIT))
        await finished.sync()
        assert finished.state is ExecutionState.FAILED
        assert (await json_docket.ledger.queries.census()).dead == 1
