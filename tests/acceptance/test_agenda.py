"""Agendas: calls that are spread over a span of time."""

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from docket import Agenda, Disposition, Docket, Worker
from docket.errors import PayloadTooLarge, ServerUnreachable, TaskNotRegistered
from docket.testing import Clock, assert_no_tasks
from tests.nodes import command_counts, reset_command_counts

HOUR = timedelta(hours=1)


async def visit(place: str, purpose: str = "tourism") -> None: ...


async def rest() -> None: ...


def test_an_agenda_holds_calls_until_it_is_cleared() -> None:
    agenda = Agenda()
    assert len(agenda) == 0
    assert list(agenda) == []

    agenda.add(visit)("Rome", purpose="study")
    agenda.add("rest", key="sunday")()

    assert len(agenda) == 2
    assert list(agenda) == [
        (visit, ("Rome",), {"purpose": "study"}, None),
        ("rest", (), {}, "sunday"),
    ]

    agenda.clear()
    assert len(agenda) == 0
    assert list(agenda) == []


async def test_calls_are_scattered_evenly_and_in_their_order(docket: Docket, clock: Clock) -> None:
    agenda = Agenda()
    for place in ("Rome", "Pisa", "Bari", "Lodi", "Ivrea"):
        agenda.add(visit)(place)

    executions = await agenda.scatter(docket, over=HOUR)

    assert [e.when - clock.now() for e in executions] == [HOUR * i / 4 for i in range(5)]
    assert [e.args[0] for e in executions] == ["Rome", "Pisa", "Bari", "Lodi", "Ivrea"]
    assert {e.disposition for e in executions} == {Disposition.SCHEDULED}
    assert (await docket.snapshot()).total_tasks == 5


async def test_a_single_call_goes_to_the_middle(docket: Docket, clock: Clock) -> None:
    agenda = Agenda()
    agenda.add(rest)()

    [execution] = await agenda.scatter(docket, over=HOUR)

    assert execution.when == clock.now() + HOUR / 2


async def test_an_empty_agenda_schedules_nothing(docket: Docket) -> None:
    assert await Agenda().scatter(docket, over=HOUR) == []


async def test_the_span_begins_at_the_start(docket: Docket, clock: Clock) -> None:
    agenda = Agenda()
    agenda.add(rest)()
    agenda.add(rest)()
    start = clock.now() + timedelta(days=2)

    executions = await agenda.scatter(docket, over=HOUR, start=start)

    assert [e.when for e in executions] == [start, start + HOUR]


async def test_jitter_moves_calls_either_way_but_never_before_the_start(docket: Docket, clock: Clock) -> None:
    agenda = Agenda()
    for _ in range(300):
        agenda.add(rest)()
    start, jitter = clock.now() + timedelta(days=1), timedelta(minutes=30)

    executions = await agenda.scatter(docket, over=HOUR, start=start, jitter=jitter)

    shifts = [e.when - (start + HOUR * i / 299) for i, e in enumerate(executions)]
    assert all(abs(shift) <= jitter + timedelta(milliseconds=1) for shift in shifts)
    assert all(e.when >= start for e in executions)
    assert min(shifts) < timedelta(0) < max(shifts)


async def test_calls_with_a_key_may_be_scattered_again_without_doubling(docket: Docket, clock: Clock) -> None:
    agenda = Agenda()
    agenda.add(rest, key="sunday")()
    agenda.add(visit, key="rome")("Rome")

    first = await agenda.scatter(docket, over=HOUR)
    clock.set(clock.now() + timedelta(minutes=1))
    second = await agenda.scatter(docket, over=HOUR)

    assert [e.key for e in second] == ["sunday", "rome"]
    assert await docket.get_execution("sunday") is not None
    assert {e.disposition for e in second} == {Disposition.ALREADY_SCHEDULED}
    assert [e.when for e in second] == [e.when for e in first]


async def test_calls_without_a_key_are_scheduled_again_under_new_keys(docket: Docket) -> None:
    agenda = Agenda()
    agenda.add(rest)()
    agenda.add(rest)()

    first = await agenda.scatter(docket, over=HOUR)
    second = await agenda.scatter(docket, over=HOUR)

    assert len({execution.key for execution in first + second}) == 4


async def test_a_function_may_be_named(docket: Docket, worker: Worker, clock: Clock) -> None:
    ran: list[str] = []

    async def note(text: str) -> None:
        ran.append(text)

    docket.register(note)
    agenda = Agenda()
    agenda.add("note")("first")
    agenda.add(note)("second")

    await agenda.scatter(docket, over=HOUR)
    await clock.advance(HOUR)

    assert ran == ["first", "second"]


async def test_an_unknown_name_stops_the_whole(docket: Docket) -> None:
    agenda = Agenda()
    agenda.add(rest)()
    agenda.add("nobody knows me")()
    agenda.add(rest)()

    with pytest.raises(TaskNotRegistered, match="nobody knows me") as caught:
        await agenda.scatter(docket, over=HOUR)

    assert isinstance(caught.value, KeyError)

    await assert_no_tasks(docket)


@pytest.mark.parametrize("over", [timedelta(0), timedelta(seconds=-1)])
async def test_the_span_must_be_positive(docket: Docket, over: timedelta) -> None:
    agenda = Agenda()
    agenda.add(rest)()

    with pytest.raises(ValueError, match="must be positive"):
        await agenda.scatter(docket, over=over)

    await assert_no_tasks(docket)


async def test_a_call_that_cannot_be_scheduled_is_told_and_the_others_are_scheduled(docket_url: str) -> None:
    async with Docket("small", docket_url, max_payload=1_000) as docket:
        agenda = Agenda()
        agenda.add(visit, key="small")("Rome")
        agenda.add(visit, key="large")("x" * 5_000)

        with pytest.raises(PayloadTooLarge) as caught:
            await agenda.scatter(docket, over=HOUR)

        assert "1 of the 2 calls" in "".join(caught.value.__notes__)
        assert await docket.get_execution("small") is not None


async def test_a_server_that_is_gone_is_no_silent_loss(tmp_path: Path) -> None:
    agenda = Agenda()
    for _ in range(3):
        agenda.add(rest)()
    async with Docket("gone", f"embedded://{tmp_path}/engine") as docket:
        async with docket.redis() as redis:
            await redis.shutdown(nosave=True)
        with pytest.raises(ServerUnreachable):
            await agenda.scatter(docket, over=HOUR)


async def test_ten_thousand_calls_take_a_few_round_trips(docket: Docket) -> None:
    agenda = Agenda()
    for i in range(10_000):
        agenda.add(visit, key=f"visit-{i}")("Rome")
    await reset_command_counts(docket)

    executions = await agenda.scatter(docket, over=timedelta(days=1), start=docket.now() + HOUR)

    assert all(earlier.when <= later.when for earlier, later in pairwise(executions))
    counts = await command_counts(docket)
    # In batches of 200, which keep the server busy for a few milliseconds.
    assert 0 < counts["evalsha"] + counts["eval"] <= 55
    assert (await docket.ledger.queries.census()).scheduled == 10_000
