"""Strikes: what is struck is neither scheduled nor run, anywhere."""

import asyncio
import enum
import logging
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from docket import (
    CurrentExecution,
    Disposition,
    Docket,
    Execution,
    ExecutionCancelled,
    ExecutionState,
    Perpetual,
    Worker,
)
from docket.codec.packing import pack
from docket.errors import Unserializable
from docket.ledger.rules import StrikeStore
from docket.strikelist import LiteralOperator, StrikeList
from tests.nodes import on_every_node
from tests.running import at_work
from tests.waiting import eventually


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    x: int
    y: int


@pytest.fixture
async def elsewhere(docket: Docket) -> AsyncGenerator[Docket]:
    """The same docket with connections of its own, as another process has it."""
    async with Docket(docket.name, docket.url) as other:
        yield other


async def send(customer: Any, amount: Any = 10, *, currency: str = "EUR") -> None: ...


async def refund(customer: Any) -> None: ...


async def disposition(docket: Docket, function: Any, *args: Any, **kwargs: Any) -> Disposition:
    return (await docket.add(function)(*args, **kwargs)).disposition


async def test_a_function_may_be_struck_by_name_before_anybody_knows_it(docket: Docket) -> None:
    await docket.strike("send")

    assert await disposition(docket, send, "ann") is Disposition.STRUCK


async def test_a_struck_task_that_waits_already_is_cancelled_instead_of_run(docket: Docket, worker: Worker) -> None:
    ran: list[str] = []

    async def note(name: str) -> None:
        ran.append(name)

    struck = await docket.add(note)("ann")
    other = await docket.add(note)("bob")
    await docket.strike(note, "name", "==", "ann")
    await worker.run_until_finished()

    assert ran == ["bob"]
    await struck.sync()
    assert struck.state is ExecutionState.CANCELLED
    with pytest.raises(ExecutionCancelled):
        await struck.get_result()
    await other.sync()
    assert other.state is ExecutionState.COMPLETED


async def test_defaults_count_as_arguments(docket: Docket) -> None:
    await docket.strike(send, "currency", "==", "EUR")

    assert await disposition(docket, send, "ann") is Disposition.STRUCK
    assert await disposition(docket, send, "ann", currency="USD") is Disposition.SCHEDULED


async def test_what_docket_provides_itself_is_no_argument(docket: Docket) -> None:
    async def task(execution: Execution = CurrentExecution()) -> None: ...

    await docket.strike(task, "execution", "!=", None)

    assert await disposition(docket, task) is Disposition.SCHEDULED


async def test_free_keyword_arguments_can_be_struck(docket: Docket) -> None:
    async def task(**options: Any) -> None: ...

    await docket.strike(task, "colour", "==", "red")

    assert await disposition(docket, task, colour="red") is Disposition.STRUCK
    assert await disposition(docket, task, colour="blue") is Disposition.SCHEDULED


async def test_arguments_that_do_not_fit_are_judged_as_far_as_they_go(docket: Docket) -> None:
    """A process with another version of the function may have scheduled it."""
    await docket.strike(refund, "customer", "==", "ann")
    when = datetime.now(UTC) + timedelta(hours=1)

    too_many = Execution(docket, refund, ("ann", "too", "many"), {"unknown": 1}, "too many", when)
    too_few = Execution(docket, refund, (), {}, "too few", when)

    assert await too_many.schedule() is Disposition.STRUCK
    assert await too_few.schedule() is Disposition.SCHEDULED


@pytest.mark.parametrize(
    ("operator", "value", "struck", "spared"),
    [
        ("==", 5, [5, 5.0, Decimal(5)], [4, 6, "5", None]),
        ("!=", 5, [4, "5", None], [5]),
        (">", 5, [6, 5.1], [5, 4]),
        (">=", 5, [5, 6], [4]),
        ("<", 5, [4], [5, 6]),
        ("<=", 5, [5, 4], [6]),
        ("between", (5, 7), [5, 6, 7], [4, 8]),
        ("between", [5, 7], [6], [8]),
    ],
)
async def test_operators(
    docket: Docket, operator: LiteralOperator, value: Any, struck: list[Any], spared: list[Any]
) -> None:
    await docket.strike(send, "customer", operator, value)

    for argument in struck:
        assert await disposition(docket, send, argument) is Disposition.STRUCK, argument
    for argument in spared:
        assert await disposition(docket, send, argument) is Disposition.SCHEDULED, argument


async def test_an_unknown_operator_is_refused_and_the_known_ones_are_named(docket: Docket) -> None:
    with pytest.raises(ValueError, match="between"):
        await docket.strike(send, "customer", "~", 1)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("bounds", [5, None, (1,), (1, 2, 3), "15", {1, 5}], ids=str)
async def test_bounds_that_are_not_a_pair_are_refused(docket: Docket, bounds: Any) -> None:
    with pytest.raises(ValueError, match=r"between.*pair"):
        await docket.strike(send, "customer", "between", bounds)
    with pytest.raises(ValueError, match=r"between.*pair"):
        await StrikeList().strike("send", "customer", "between", bounds)

    assert docket.strike_list.is_empty


async def test_a_strike_must_name_something(docket: Docket) -> None:
    with pytest.raises(ValueError, match="needs a function"):
        await docket.strike()
    with pytest.raises(ValueError, match="needs a function"):
        await docket.restore()


VALUES: list[tuple[LiteralOperator, Any, Any]] = [
    ("==", None, None),
    ("==", True, True),
    ("==", 10**30, 10**30),
    ("==", "grüße \N{SNOWMAN}", "grüße \N{SNOWMAN}"),
    ("==", b"\x00\xff", b"\x00\xff"),
    ("==", UUID(int=7), UUID(int=7)),
    ("==", (1, "a"), (1, "a")),
    ("==", [1, [2]], [1, [2]]),
    ("==", {"a": [1]}, {"a": [1]}),
    ("==", {"x", "y", "z"}, {"z", "y", "x"}),
    (">", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)),
    ("<=", date(2026, 1, 1), date(2026, 1, 1)),
    (">=", timedelta(minutes=5), timedelta(minutes=5)),
    ("between", (Decimal("1.5"), Decimal("2.5")), 2),
]


@pytest.mark.parametrize(("operator", "value", "argument"), VALUES)
async def test_values_of_any_type_are_struck_and_restored_by_another_process(
    docket: Docket, elsewhere: Docket, operator: LiteralOperator, value: Any, argument: Any
) -> None:
    await docket.strike(send, "customer", operator, value)
    assert await disposition(docket, send, argument) is Disposition.STRUCK

    await eventually(lambda: not elsewhere.strike_list.is_empty, "the other docket knows of the strike")
    assert await disposition(elsewhere, send, argument) is Disposition.STRUCK

    await elsewhere.restore(send, "customer", operator, value)
    assert await disposition(elsewhere, send, argument) is Disposition.SCHEDULED
    await eventually(lambda: docket.strike_list.is_empty, "the docket knows that the strike is over")


@pytest.mark.parametrize("value", [Colour.RED, Point(1, 2)])
async def test_values_of_other_types_need_the_choice_of_pickle_on_both_sides(docket: Docket, value: Any) -> None:
    with pytest.raises(Unserializable, match="pickled_strikes=True"):
        await docket.strike(send, "customer", "==", value)

    async with Docket(docket.name, docket.url, pickled_strikes=True) as trusting:
        await trusting.strike(send, "customer", "==", value)
        assert await disposition(trusting, send, value) is Disposition.STRUCK
        await eventually(lambda: docket.strike_list.unreadable, "the docket that does not accept pickle lists the rule")
        assert await disposition(docket, send, value) is Disposition.SCHEDULED

        await trusting.restore(send, "customer", "==", value)
        await eventually(lambda: not docket.strike_list.unreadable, "the docket knows that the rule is gone")


async def test_a_strike_is_taken_back_by_an_equal_one(docket: Docket, elsewhere: Docket) -> None:
    """1, 1.0 and True are equal in Python, however they are stored."""
    await docket.strike(send, "customer", "==", 1)

    await elsewhere.restore(send, "customer", "==", 1.0)

    assert elsewhere.strike_list.is_empty
    await eventually(lambda: docket.strike_list.is_empty, "the docket knows that the strike is over")


async def test_striking_twice_is_striking_once(docket: Docket) -> None:
    await docket.strike(send, "customer", "==", 1)
    await docket.strike(send, "customer", "==", True)
    assert len(docket.strike_list.in_effect) == 1

    await docket.restore(send, "customer", "==", 1)

    assert await disposition(docket, send, 1) is Disposition.SCHEDULED


async def test_restoring_what_is_not_struck_changes_nothing(docket: Docket) -> None:
    await docket.strike(send, "customer", "==", 1)

    await docket.restore(send, "customer", "==", 2)
    await docket.restore(send)

    assert await disposition(docket, send, 1) is Disposition.STRUCK


class Awkward:
    """Cannot be compared with anything."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    def __lt__(self, other: object) -> bool:
        raise RuntimeError("no comparing")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


@pytest.mark.parametrize(
    ("operator", "value", "argument"),
    [
        (">", 5, "text"),
        ("<", "text", None),
        ("between", (1, 5), "text"),
        (">=", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)),
        ("==", 5, Awkward()),
        ("!=", 5, Awkward()),
        ("==", 5, [5]),
    ],
)
async def test_what_cannot_be_compared_does_not_match_and_does_no_harm(
    docket: Docket, worker: Worker, operator: LiteralOperator, value: Any, argument: Any
) -> None:
    await docket.strike(send, "customer", operator, value)

    execution = await docket.add(send)(argument)
    await worker.run_until_finished()

    assert execution.disposition is Disposition.SCHEDULED
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED


@pytest.mark.parametrize("operator", ["<", "=="])
async def test_a_struck_value_that_cannot_be_compared_does_no_harm(docket: Docket, operator: LiteralOperator) -> None:
    async with Docket(docket.name, docket.url, pickled_strikes=True) as trusting:
        await trusting.strike(send, "customer", operator, Awkward())

        assert await disposition(trusting, send, 5) is Disposition.SCHEDULED


async def test_a_comparison_that_fails_is_told_once_for_each_strike(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    await docket.strike(send, "customer", ">", 5)

    with caplog.at_level(logging.WARNING, logger="docket.strikelist"):
        for _ in range(10):
            await docket.add(send)("text")

    assert [record.message for record in caplog.records].count(caplog.records[0].message) == 1
    assert "send(customer > 5)" in caplog.text


async def test_a_value_that_cannot_be_stored_is_refused(docket: Docket) -> None:
    with pytest.raises(Unserializable):
        await docket.strike(send, "customer", "==", asyncio.get_running_loop())


async def test_replacing_by_something_struck_leaves_what_waits(docket: Docket) -> None:
    later = docket.now() + timedelta(hours=1)
    await docket.add(send, when=later, key="k")("bob")
    await docket.strike(send, "customer", "==", "ann")

    execution = await docket.replace(send, later, "k")("ann")

    assert execution.disposition is Disposition.STRUCK
    waiting = await docket.get_execution("k")
    assert waiting is not None
    assert waiting.args == ("bob",)


async def test_whoever_opens_a_docket_later_knows_its_strikes(docket: Docket) -> None:
    await docket.strike(send)

    async with Docket(docket.name, docket.url) as late:
        assert await disposition(late, send, "ann") is Disposition.STRUCK


async def test_strikes_of_one_docket_are_not_those_of_another(docket: Docket) -> None:
    await docket.strike(send)

    async with Docket("another", docket.url) as other:
        assert other.strike_list.is_empty
        await docket.strike(refund)
        await other.strike("marker")
        await eventually(lambda: len(other.strike_list.in_effect) > 0, "the other docket knows of the strike")
        assert await disposition(other, refund, "ann") is Disposition.SCHEDULED


async def test_a_struck_automatic_task_stops_and_comes_back_after_its_restore(docket: Docket) -> None:
    """The chain ends with the strike; workers seed it again when they start."""
    ran: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=5), automatic=True)) -> None:
        ran.append(1)

    docket.register(tick)
    async with Worker(docket) as worker, at_work(worker):
        await eventually(lambda: len(ran) > 2, "the task has run three times")
        await docket.strike(tick)
        await eventually(lambda: not len(worker.runs), "nothing runs")
        stopped_at = len(ran)
    async with Worker(docket) as worker, at_work(worker):
        assert len(ran) == stopped_at
    await docket.restore(tick)
    async with Worker(docket) as worker, at_work(worker):
        await eventually(lambda: len(ran) > stopped_at, "the task runs again")


async def test_what_was_restored_stays_restored_when_an_old_message_comes_late(docket: Docket) -> None:
    """A change is applied when it is acknowledged; the message
    about it may come much later and must change nothing."""
    messages: list[bytes] = []
    await docket.subscriptions.listen(docket.keys.strike_channel, messages.append)
    await docket.strike(send)
    await docket.restore(send)
    await eventually(lambda: len(messages) == 2, "both messages have come")

    async with docket.redis() as redis:
        await redis.publish(docket.keys.strike_channel, messages[0])
    await docket.strike("marker")
    await eventually(lambda: len(messages) == 4, "all four messages have come")

    assert await disposition(docket, send, "ann") is Disposition.SCHEDULED


async def test_strike_and_restore_are_in_force_as_soon_as_they_return(docket: Docket) -> None:
    for _ in range(100):
        await docket.strike(send)
        assert await disposition(docket, send, "ann") is Disposition.STRUCK
        await docket.restore(send)
        assert await disposition(docket, send, "ann") is Disposition.SCHEDULED


async def test_two_processes_that_strike_and_restore_at_once_end_up_agreeing(docket: Docket, elsewhere: Docket) -> None:
    async def quarrel(one: Docket, own: str) -> None:
        for i in range(50):
            await one.strike(send, "customer", "==", i % 5)
            await one.restore(send, "customer", "==", (i + 1) % 5)
        await one.strike(own)

    await asyncio.gather(quarrel(docket, "first"), quarrel(elsewhere, "second"))
    everybody = [docket, elsewhere]

    def in_effect(one: Docket) -> list[str]:
        return sorted(strike.call_repr() for strike in one.strike_list.in_effect)

    await eventually(
        lambda: all({"first(...)", "second(...)"} <= set(in_effect(one)) for one in everybody),
        "everybody knows both strikes",
    )
    async with Docket(docket.name, docket.url) as late:
        assert in_effect(docket) == in_effect(elsewhere) == in_effect(late)


async def test_strikes_made_while_the_connection_was_gone_are_known_when_it_is_back(
    docket: Docket, elsewhere: Docket
) -> None:
    await docket.strike(refund)
    await eventually(lambda: not elsewhere.strike_list.is_empty, "the other docket knows of the strike")
    for i in range(20):
        await on_every_node(docket, "CLIENT", "KILL", "TYPE", "pubsub")
        await docket.strike(send, "customer", "==", i)
        if i:
            await docket.restore(send, "customer", "==", i - 1)

    def knows_the_last(one: Docket) -> bool:
        return not any(one.strike_list.is_stricken(_call(i)) for i in range(19)) and one.strike_list.is_stricken(
            _call(19)
        )

    await eventually(lambda: knows_the_last(elsewhere) and knows_the_last(docket), "both dockets know the last strike")
    assert elsewhere.strike_list.is_stricken("refund")


class _Call:
    def __init__(self, customer: Any) -> None:
        self.function_name, self.function, self.args, self.kwargs = "send", send, (customer,), {}


def _call(customer: Any) -> Any:
    return _Call(customer)


async def test_another_process_obeys_at_once(tmp_path: Path) -> None:
    program = tmp_path / "obey.py"
    program.write_text(
        "import asyncio, sys\n"
        "from docket import Docket\n"
        "async def main():\n"
        "    async with Docket('shared', sys.argv[1]) as docket:\n"
        "        print('ready', flush=True)\n"
        "        while docket.strike_list.is_empty: await asyncio.sleep(0.001)\n"
        "        print(docket.strike_list.in_effect[0].call_repr(), flush=True)\n"
        "        while not docket.strike_list.is_empty: await asyncio.sleep(0.001)\n"
        "        print('restored', flush=True)\n"
        "asyncio.run(main())\n"
    )
    url = f"embedded://{tmp_path}/engine"
    async with Docket("shared", url) as docket:
        other = await asyncio.create_subprocess_exec(sys.executable, str(program), url, stdout=asyncio.subprocess.PIPE)
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"

        await docket.strike(send, "amount", ">", 100)
        assert await other.stdout.readline() == b"send(amount > 100)\n"

        await docket.restore(send, "amount", ">", 100)
        assert await other.stdout.readline() == b"restored\n"
        assert await other.wait() == 0


async def test_a_strike_that_this_process_cannot_read_harms_nobody(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    """Its value may be of a class that is not installed here."""
    book = StrikeStore(docket.server, docket.keys)
    await docket.strike(refund)
    await book.write([("unreadable", pack((2, b"send", b"customer", "==", b"\x01\x01\x00garbage", "?")))])
    await book.write([("from-the-future", pack((99, "whatever")))])

    await eventually(
        lambda: caplog.text.count("cannot be applied here") >= 2, "the docket logs both strikes that it cannot apply"
    )
    assert await disposition(docket, send, "ann") is Disposition.SCHEDULED
    async with Docket(docket.name, docket.url) as late:
        assert [strike.function for strike in late.strike_list.in_effect] == ["refund"]
