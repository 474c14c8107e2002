"""Blocking tasks on every process at once."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from docket import Disposition, Docket, Execution, Perpetual, StrikeList, Worker
from docket.strikelist import Operator, Restore, Strike
from tests.running import run_everything, running
from tests.times import later, now, soon
from tests.waiting import ends, eventually, within

DAY = datetime(2026, 1, 14, tzinfo=UTC)


class Recorder:
    """Two tasks, and a record of the calls that ran."""

    def __init__(self) -> None:
        self.served: list[Any] = []

    async def serve(self, customer: Any, region: str = "north") -> None:
        self.served.append(customer)

    async def other(self, customer: Any = None) -> None:
        self.served.append("other")


@pytest.fixture
def recorder(docket: Docket) -> Recorder:
    recorder = Recorder()
    docket.register(recorder.serve)
    docket.register(recorder.other)
    return recorder


async def test_a_struck_function_is_not_scheduled(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve)

    struck = await docket.add(recorder.serve, key="k")("a")
    fine = await docket.add(recorder.other)()

    assert struck.disposition == Disposition.STRUCK
    assert await docket.get_execution("k") is None
    await run_everything(docket)
    assert fine.disposition == Disposition.SCHEDULED
    assert recorder.served == ["other"]


async def test_a_function_can_be_struck_by_its_name(docket: Docket, recorder: Recorder) -> None:
    await docket.strike("serve")

    await docket.add(recorder.serve)("a")
    await run_everything(docket)

    assert recorder.served == []


async def test_a_restored_function_runs_again(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve)
    await docket.restore(recorder.serve)
    assert docket.strike_list.is_empty

    await docket.add(recorder.serve)("a")
    await run_everything(docket)

    assert recorder.served == ["a"]


async def test_a_task_that_waits_already_does_not_run_once_it_is_struck(docket: Docket, recorder: Recorder) -> None:
    await docket.add(recorder.serve)("a")
    await docket.add(recorder.serve, when=soon(30))("b")
    await docket.strike(recorder.serve)
    await run_everything(docket)

    assert recorder.served == []


async def test_replacing_by_a_struck_task_is_struck_too(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve)

    execution = await docket.replace(recorder.serve, when=now(), key="k")("a")
    await run_everything(docket)

    assert execution.disposition == Disposition.STRUCK
    assert recorder.served == []


async def test_a_batch_leaves_out_what_is_struck(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve, "customer", "==", "b")

    executions = await docket.add_many(docket.call(recorder.serve)(customer) for customer in "abc")
    await run_everything(docket)

    assert [execution.disposition for execution in executions] == [
        Disposition.SCHEDULED,
        Disposition.STRUCK,
        Disposition.SCHEDULED,
    ]
    assert sorted(recorder.served) == ["a", "c"]


async def test_a_parameter_is_struck_for_all_tasks_that_have_it(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(parameter="customer", value="a")

    await docket.add(recorder.serve)("a")
    await docket.add(recorder.other)(customer="a")
    await docket.add(recorder.serve)("b")
    await run_everything(docket)

    assert recorder.served == ["b"]


async def test_a_parameter_of_one_function_is_struck_for_that_alone(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve, "customer", "==", "a")

    await docket.add(recorder.serve)("a")
    await docket.add(recorder.other)("a")
    await docket.add(recorder.serve)("b")
    await run_everything(docket)

    assert sorted(recorder.served) == ["b", "other"]


async def test_an_argument_given_by_keyword_is_struck_like_one_by_position(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve, "customer", "==", "a")

    await docket.add(recorder.serve)(customer="a")
    await run_everything(docket)

    assert recorder.served == []


async def test_an_empty_function_means_every_task(docket: Docket, recorder: Recorder) -> None:
    await docket.strike("", "customer", "==", "x")

    struck = [await docket.add(recorder.serve)("x"), await docket.add(recorder.other)("x")]
    fine = await docket.add(recorder.serve)("y")

    assert [execution.disposition for execution in struck] == [Disposition.STRUCK, Disposition.STRUCK]
    assert fine.disposition == Disposition.SCHEDULED
    await docket.restore(None, "customer", "==", "x")
    assert docket.strike_list.is_empty


async def test_an_empty_parameter_means_the_whole_task(docket: Docket, recorder: Recorder) -> None:
    await docket.strike("serve", "")

    assert (await docket.add(recorder.serve)("x")).disposition == Disposition.STRUCK
    await docket.restore("serve")
    assert (await docket.add(recorder.serve)("x")).disposition == Disposition.SCHEDULED


@pytest.mark.parametrize("verb", ["strike", "restore"])
async def test_two_empty_names_are_refused_as_nothing_is_named(docket: Docket, verb: str) -> None:
    with pytest.raises(ValueError, match="needs a function, a parameter, or both"):
        await getattr(docket, verb)("", "")


async def test_a_list_shows_what_is_in_force_by_function_and_by_parameter(docket: Docket, recorder: Recorder) -> None:
    strikes = docket.strike_list
    await docket.strike(recorder.other)
    await docket.strike(recorder.serve, "customer", "==", "x")
    await docket.strike(recorder.serve, "customer", ">", "y")
    await docket.strike(None, "region", "==", "south")
    await docket.strike("unhashable", "numbers", "==", [1])

    assert strikes.task_strikes == {
        "other": {},
        "serve": {"customer": {("==", "x"), (">", "y")}},
        "unhashable": {"numbers": set()},
    }
    assert strikes.parameter_strikes == {"region": {("==", "south")}}


async def test_a_lifted_strike_leaves_no_empty_entries(docket: Docket, recorder: Recorder) -> None:
    targets: list[tuple[Any, ...]] = [("serve",), ("other", "customer", "==", "x"), (None, "region", "==", "south")]
    for target in targets:
        await docket.strike(*target)
        await docket.restore(*target)

    assert docket.strike_list.task_strikes == {}
    assert docket.strike_list.parameter_strikes == {}


async def test_restoring_one_of_two_strikes_leaves_the_other(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve, "customer", "==", "a")
    await docket.strike(recorder.serve, "customer", "==", "b")
    await docket.restore(recorder.serve, "customer", "==", "a")

    await docket.add(recorder.serve)("a")
    await docket.add(recorder.serve)("b")
    await run_everything(docket)

    assert recorder.served == ["a"]


OPERATORS: list[tuple[Any, Any, list[Any], list[Any]]] = [
    ("==", 5, [5], [4, 6]),
    ("!=", 5, [4, 6], [5]),
    (">", 5, [6], [4, 5]),
    (">=", 5, [5, 6], [4]),
    ("<", 5, [4], [5, 6]),
    ("<=", 5, [4, 5], [6]),
    ("between", (4, 6), [4, 5, 6], [3, 7]),
    (Operator.GREATER_THAN, 5, [6], [5]),
]


@pytest.mark.parametrize(("operator", "value", "struck", "spared"), OPERATORS)
async def test_every_operator_strikes_what_it_says(
    docket: Docket, recorder: Recorder, operator: Any, value: Any, struck: list[Any], spared: list[Any]
) -> None:
    await docket.strike(recorder.serve, "customer", operator, value)

    for customer in struck + spared:
        await docket.add(recorder.serve)(customer)
    await run_everything(docket)

    assert sorted(recorder.served) == sorted(spared)


@pytest.mark.parametrize(("operator", "value", "struck", "spared"), OPERATORS)
async def test_every_operator_can_be_restored(
    docket: Docket, recorder: Recorder, operator: Any, value: Any, struck: list[Any], spared: list[Any]
) -> None:
    await docket.strike(recorder.serve, "customer", operator, value)
    await docket.restore(recorder.serve, "customer", operator, value)

    for customer in struck + spared:
        await docket.add(recorder.serve)(customer)
    await run_everything(docket)

    assert sorted(recorder.served) == sorted(struck + spared)


@pytest.mark.parametrize(
    ("bound", "above", "below"),
    [
        (5, 6, 4),
        (5.5, 5.6, 5.4),
        ("m", "n", "l"),
        (DAY, DAY + timedelta(seconds=1), DAY - timedelta(seconds=1)),
        (date(2026, 1, 14), date(2026, 1, 15), date(2026, 1, 13)),
        (timedelta(minutes=5), timedelta(minutes=6), timedelta(minutes=4)),
        (Decimal("1.10"), Decimal("1.11"), Decimal("1.09")),
        (UUID(int=5), UUID(int=6), UUID(int=4)),
        (b"m", b"n", b"l"),
        ((1, 2), (1, 3), (1, 1)),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_values_of_every_type_that_can_be_compared_work(
    docket: Docket, recorder: Recorder, bound: Any, above: Any, below: Any
) -> None:
    await docket.strike(recorder.serve, "customer", ">", bound)

    for customer in (bound, above, below):
        await docket.add(recorder.serve)(customer)
    await run_everything(docket)

    assert len(recorder.served) == 2
    assert above not in recorder.served


@pytest.mark.parametrize("value", [None, True, "a", 1, 1.5, UUID(int=7), DAY, ("a", 1)])
async def test_values_of_every_type_are_struck_when_equal(docket: Docket, recorder: Recorder, value: Any) -> None:
    await docket.strike(recorder.serve, "customer", "==", value)

    await docket.add(recorder.serve)(value)
    await docket.add(recorder.serve)("someone else")
    await run_everything(docket)

    assert recorder.served == ["someone else"]


@pytest.mark.parametrize("operator", [">", ">=", "<", "<=", "between"])
@pytest.mark.parametrize("customer", ["text", None, [1], {"a": 1}, object])
async def test_values_that_cannot_be_compared_never_match(
    docket: Docket, recorder: Recorder, operator: Any, customer: Any
) -> None:
    await docket.strike(recorder.serve, "customer", operator, (1, 9) if operator == "between" else 5)

    await docket.add(recorder.serve)(customer)
    await run_everything(docket)

    assert recorder.served == [customer]


async def test_a_task_without_the_struck_parameter_is_spared(docket: Docket) -> None:
    await docket.strike(parameter="customer", operator="!=", value="a")

    assert (await docket.add("trace")("hello")).disposition == Disposition.SCHEDULED


@pytest.mark.parametrize("bounds", [5, None, (1,), (1, 2, 3), ("a", 9)])
def test_bounds_that_are_no_pair_of_one_kind_never_match(bounds: Any) -> None:
    strikes = StrikeList()
    strikes.update(Strike(None, "customer", Operator.BETWEEN, bounds))

    assert not strikes.is_stricken({"customer": 5})


async def test_other_processes_know_of_a_strike(docket: Docket, recorder: Recorder, name: str, url: str) -> None:
    async with Docket(name=name, url=url) as other:
        other.register(recorder.serve)
        await docket.strike(recorder.serve)

        async def is_known() -> bool:
            return other.strike_list.is_stricken("serve")

        await eventually(is_known, "the other docket knows of the strike")
        struck = await other.add(recorder.serve)("a")
        await docket.restore(recorder.serve)

        async def is_over() -> bool:
            return not other.strike_list.is_stricken("serve")

        await eventually(is_over, "the other docket knows that the strike is over")

    assert struck.disposition == Disposition.STRUCK


async def test_a_docket_that_comes_later_knows_of_earlier_strikes(
    docket: Docket, recorder: Recorder, name: str, url: str
) -> None:
    await docket.strike(recorder.serve)

    async with Docket(name=name, url=url) as other:
        await within(other.wait_for_strikes_loaded())
        execution = await other.add(recorder.serve)("a")

    assert execution.disposition == Disposition.STRUCK


async def test_a_struck_perpetual_task_does_not_come_again(docket: Docket, worker: Worker) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)
        await docket.strike("tick")

    await docket.add(tick)()
    await ends(worker.run_until_finished())

    assert runs == [1]


async def test_clearing_leaves_strikes_alone(docket: Docket, recorder: Recorder) -> None:
    await docket.strike(recorder.serve)
    await docket.clear()

    assert (await docket.add(recorder.serve)("a")).disposition == Disposition.STRUCK


async def test_a_task_that_runs_already_is_not_stopped_by_a_strike(docket: Docket, worker: Worker) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        started.set()
        await finish.wait()
        return "done"

    execution = await docket.add(hold)()
    async with running(worker):
        await within(started.wait())
        await docket.strike(hold)
        finish.set()
        assert await within(execution.get_result()) == "done"


# A list of strikes without a docket


@pytest.fixture
async def strikes(name: str, url: str) -> AsyncGenerator[StrikeList]:
    async with StrikeList(url=url, name=name) as strikes:
        yield strikes


async def test_a_list_alone_needs_no_server() -> None:
    strikes = StrikeList()
    strikes.update(Strike("serve", None, Operator.EQUAL, None))

    assert strikes.is_stricken("serve")
    assert not strikes.is_stricken("other")

    strikes.update(Restore("serve", None, Operator.EQUAL, None))
    assert not strikes.is_stricken("serve")


async def test_a_list_answers_for_parameters_alone() -> None:
    strikes = StrikeList()
    strikes.update(Strike(None, "customer", Operator.GREATER_THAN, 5))

    assert strikes.is_stricken({"customer": 6})
    assert not strikes.is_stricken({"customer": 5})
    assert not strikes.is_stricken({"region": 6})


async def test_a_list_answers_for_an_execution(docket: Docket, recorder: Recorder) -> None:
    execution = Execution(docket, recorder.serve, ("a",), {}, "k", later())
    strikes = StrikeList()
    assert not strikes.is_stricken(execution)

    strikes.update(Strike("serve", "customer", Operator.EQUAL, "a"))
    assert strikes.is_stricken(execution)


async def test_a_connected_list_follows_a_docket(docket: Docket, recorder: Recorder, strikes: StrikeList) -> None:
    await docket.strike("serve")
    await within(strikes.wait_for_strikes_loaded())

    async def is_known() -> bool:
        return strikes.is_stricken("serve")

    await eventually(is_known, "the list knows of the strike")


async def test_a_connected_list_strikes_for_a_docket(docket: Docket, recorder: Recorder, strikes: StrikeList) -> None:
    await strikes.strike("serve", "customer", "==", "a")

    async def is_known() -> bool:
        return docket.strike_list.is_stricken({"customer": "a"}) or docket.strike_list.is_stricken(
            Execution(docket, recorder.serve, ("a",), {}, "k", later())
        )

    await eventually(is_known, "the docket knows of the strike")
    await strikes.restore("serve", "customer", "==", "a")

    async def is_over() -> bool:
        return not await is_known()

    await eventually(is_over, "the docket knows that the strike is over")


async def test_an_instruction_can_be_sent_as_it_is(docket: Docket, strikes: StrikeList) -> None:
    await strikes.send_instruction(Strike("serve", None, Operator.EQUAL, None))

    await eventually(lambda: docket.strike_list.is_stricken("serve"), "the docket knows of the strike")


async def test_a_list_is_connected_and_closed_by_hand_too(docket: Docket, name: str, url: str) -> None:
    strikes = StrikeList(url=url, name=name)
    await strikes.connect()
    try:
        await strikes.strike("serve")
    finally:
        await strikes.close()
    async with Docket(name=name, url=url) as other:
        await other.wait_for_strikes_loaded()
        assert other.strike_list.is_stricken("serve")


async def test_a_condition_of_ones_own_strikes(docket: Docket, recorder: Recorder) -> None:
    def is_for_nobody(execution: Execution) -> bool:
        return execution.kwargs.get("customer") == "nobody"

    docket.strike_list.add_condition(is_for_nobody)
    struck = await docket.add(recorder.serve)(customer="nobody")
    spared = await docket.add(recorder.serve)(customer="a")
    docket.strike_list.remove_condition(is_for_nobody)
    restored = await docket.add(recorder.serve, key=str(uuid4()))(customer="nobody")

    assert [execution.disposition for execution in (struck, spared, restored)] == [
        Disposition.STRUCK,
        Disposition.SCHEDULED,
        Disposition.SCHEDULED,
    ]


async def test_strikes_that_another_client_left_behind_do_no_harm(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as before, before.redis() as redis:
        await redis.xadd(before.key("strikes"), {b"direction": b"strike", b"function": b"serve"})

    async with Docket(name=name, url=url) as docket:
        await docket.strike("other")
        await docket.wait_for_strikes_loaded()

        assert docket.strike_list.is_stricken("other")
        assert not docket.strike_list.is_stricken("serve")
