"""Spreading many tasks over a stretch of time."""

from datetime import timedelta
from itertools import pairwise

import pytest

from docket import Agenda, Docket
from tests.times import later, now

HOUR = timedelta(hours=1)


async def serve(customer: str, region: str = "north") -> None: ...


async def other() -> None: ...


def agenda_of(count: int) -> Agenda:
    agenda = Agenda()
    for number in range(count):
        agenda.add(serve)(str(number))
    return agenda


def test_a_new_agenda_is_empty() -> None:
    agenda = Agenda()

    assert len(agenda) == 0
    assert list(agenda) == []


def test_an_agenda_counts_and_lists_what_was_added() -> None:
    agenda = Agenda()
    agenda.add(serve)("a", region="south")
    agenda.add(other)()

    assert len(agenda) == 2
    functions = [entry[0] for entry in agenda]
    assert functions == [serve, other]


def test_an_agenda_can_be_cleared() -> None:
    agenda = agenda_of(3)
    agenda.clear()

    assert len(agenda) == 0


async def test_tasks_are_spread_evenly(docket: Docket) -> None:
    start = later()

    executions = await agenda_of(5).scatter(docket, over=HOUR, start=start)

    whens = sorted(execution.when for execution in executions)
    gaps = {round((second - first).total_seconds()) for first, second in pairwise(whens)}
    assert len(executions) == 5
    assert len(gaps) == 1
    assert all(start <= when <= start + HOUR for when in whens)
    assert (await docket.snapshot()).total_tasks == 5


async def test_the_spread_starts_now_by_default(docket: Docket) -> None:
    before = now()

    executions = await agenda_of(3).scatter(docket, over=HOUR)

    assert all(before - timedelta(seconds=1) <= execution.when <= now() + HOUR for execution in executions)


async def test_executions_come_in_the_order_they_were_added(docket: Docket) -> None:
    executions = await agenda_of(4).scatter(docket, over=HOUR, start=later())

    assert [execution.args for execution in executions] == [("0",), ("1",), ("2",), ("3",)]


async def test_jitter_moves_each_task_by_no_more_than_it_says(docket: Docket) -> None:
    start = later()
    jitter = timedelta(minutes=2)

    plain = await agenda_of(20).scatter(docket, over=HOUR, start=start)
    moved = await agenda_of(20).scatter(docket, over=HOUR, start=start, jitter=jitter)

    shifts = [abs(second.when - first.when) for first, second in zip(plain, moved, strict=True)]
    assert all(shift <= jitter + timedelta(seconds=1) for shift in shifts)
    assert len({execution.when for execution in moved}) > 1
    assert any(shift > timedelta(0) for shift in shifts)
    assert all(execution.when >= start for execution in moved)


async def test_one_task_is_scheduled_within_the_stretch(docket: Docket) -> None:
    start = later()

    (execution,) = await agenda_of(1).scatter(docket, over=HOUR, start=start)

    assert start <= execution.when <= start + HOUR


async def test_an_empty_agenda_scatters_nothing(docket: Docket) -> None:
    assert await Agenda().scatter(docket, over=HOUR) == []


async def test_a_key_can_be_given(docket: Docket) -> None:
    agenda = Agenda()
    agenda.add(serve, key="the-key")("a")

    (execution,) = await agenda.scatter(docket, over=HOUR, start=later())

    assert execution.key == "the-key"
    assert await docket.get_execution("the-key") is not None


async def test_a_registered_name_can_be_added(docket: Docket) -> None:
    docket.register(serve)
    agenda = Agenda()
    agenda.add("serve")("a")

    (execution,) = await agenda.scatter(docket, over=HOUR, start=later())

    assert execution.function_name == "serve"


async def test_a_name_nobody_registered_is_a_key_error(docket: Docket) -> None:
    agenda = Agenda()
    agenda.add("nobody")()

    with pytest.raises(KeyError, match="nobody"):
        await agenda.scatter(docket, over=HOUR)


@pytest.mark.parametrize("over", [timedelta(0), -HOUR])
async def test_a_stretch_that_is_not_positive_is_refused(docket: Docket, over: timedelta) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the wording is free
        await agenda_of(2).scatter(docket, over=over)


async def test_an_agenda_can_be_scattered_again(docket: Docket) -> None:
    agenda = agenda_of(2)

    first = await agenda.scatter(docket, over=HOUR, start=later())
    second = await agenda.scatter(docket, over=HOUR, start=later())

    assert len({execution.key for execution in first + second}) == 4
