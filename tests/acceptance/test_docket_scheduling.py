"""Adding and replacing single tasks."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import UUID

import pytest

from docket import Disposition, Docket, ExecutionState
from tests.running import run_everything
from tests.times import later, now, soon


async def noop(*args: object, **kwargs: object) -> None: ...


class Notes(list[object]):
    """What a task was called with."""

    def task(self) -> Callable[[object], Awaitable[object]]:
        async def note(value: object) -> object:
            self.append(value)
            return value

        return note


@pytest.mark.parametrize("attempt", range(5))
async def test_a_task_added_for_now_is_queued(docket: Docket, attempt: int) -> None:
    execution = await docket.add(noop)()

    assert execution.state == ExecutionState.QUEUED
    assert execution.disposition == Disposition.SCHEDULED


async def test_a_task_added_for_later_is_scheduled(docket: Docket) -> None:
    execution = await docket.add(noop, when=later())()

    assert execution.state == ExecutionState.SCHEDULED
    assert execution.disposition == Disposition.SCHEDULED


async def test_a_time_in_the_past_means_now(docket: Docket) -> None:
    execution = await docket.add(noop, when=now() - timedelta(days=1))()

    assert execution.state == ExecutionState.QUEUED


async def test_a_task_gets_the_arguments_it_was_added_with(docket: Docket) -> None:
    seen: list[object] = []

    async def take(a: int, *rest: int, b: str, **others: object) -> None:
        seen.extend([a, rest, b, others])

    await docket.add(take)(1, 2, 3, b="four", c={5: [6]})
    await run_everything(docket)

    assert seen == [1, (2, 3), "four", {"c": {5: [6]}}]


async def test_an_absent_key_is_a_fresh_uuid_of_version_seven(docket: Docket) -> None:
    first = await docket.add(noop)()
    second = await docket.add(noop)()

    assert first.key != second.key
    assert UUID(first.key).version == 7


async def test_an_execution_says_what_was_asked_for(docket: Docket) -> None:
    when = later()

    execution = await docket.add(noop, when=when, key="k")(1, b=2)

    assert execution.docket is docket
    assert execution.function is noop
    assert execution.function_name == "noop"
    assert execution.args == (1,)
    assert execution.kwargs == {"b": 2}
    assert execution.key == "k"
    assert execution.when == when
    assert execution.attempt == 1
    assert execution.redelivered is False


async def test_adding_a_waiting_key_again_changes_nothing(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    await docket.add(note, when=soon(), key="k")("first")
    again = await docket.add(note, key="k")("second")
    await run_everything(docket)

    assert again.disposition == Disposition.ALREADY_SCHEDULED
    assert notes == ["first"]


async def test_a_key_can_be_used_again_after_its_task_is_done(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    await docket.add(note, key="k")("first")
    await run_everything(docket)
    again = await docket.add(note, key="k")("second")
    await run_everything(docket)

    assert again.disposition == Disposition.SCHEDULED
    assert notes == ["first", "second"]


async def test_a_registered_name_stands_for_its_function(docket: Docket) -> None:
    notes = Notes()
    docket.register(notes.task())

    await docket.add("note")("by name")
    await run_everything(docket)

    assert notes == ["by name"]


async def test_adding_a_name_nobody_registered_is_a_key_error(docket: Docket) -> None:
    with pytest.raises(KeyError, match="nobody"):
        await docket.add("nobody")()


async def test_replacing_by_a_name_nobody_registered_is_a_key_error(docket: Docket) -> None:
    with pytest.raises(KeyError, match="nobody"):
        await docket.replace("nobody", now(), "k")()


async def test_calling_a_name_nobody_registered_is_a_key_error(docket: Docket) -> None:
    with pytest.raises(KeyError, match="nobody"):
        docket.call("nobody")()


async def test_replacing_a_task_changes_its_time_and_arguments(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    await docket.add(note, when=later(), key="k")("first")
    replacement = await docket.replace(note, when=soon(), key="k")("second")
    await run_everything(docket)

    assert replacement.disposition == Disposition.SCHEDULED
    assert notes == ["second"]


async def test_replacing_a_key_that_is_not_there_adds_it(docket: Docket) -> None:
    notes = Notes()

    await docket.replace(notes.task(), when=now(), key="k")("only")
    await run_everything(docket)

    assert notes == ["only"]


async def test_replacing_may_change_the_function(docket: Docket) -> None:
    notes = Notes()

    await docket.add(noop, when=later(), key="k")()
    await docket.replace(notes.task(), when=now(), key="k")("other function")
    await run_everything(docket)

    assert notes == ["other function"]


async def test_a_queued_task_can_be_moved_to_a_later_time(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    await docket.add(note, key="k")("first")
    execution = await docket.replace(note, when=later(), key="k")("second")
    await execution.sync()

    assert execution.state == ExecutionState.SCHEDULED
    assert (await docket.snapshot()).total_tasks == 1


async def test_tasks_run_in_the_order_they_were_added(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    for n in range(5):
        await docket.add(note)(n)
    await run_everything(docket, concurrency=1)

    assert notes == [0, 1, 2, 3, 4]


async def test_an_execution_can_be_scheduled_by_hand(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()
    first = await docket.add(note, key="k")("by hand")
    await run_everything(docket)

    await docket.schedule(first)
    await run_everything(docket)

    assert notes == ["by hand", "by hand"]


async def test_arguments_may_be_objects_of_classes_defined_on_the_spot(docket: Docket) -> None:
    class Parcel:
        weight = 3

    notes = Notes()
    await docket.add(notes.task())(Parcel())
    await run_everything(docket)

    assert [type(note).__name__ for note in notes] == ["Parcel"]


async def test_what_cannot_be_pickled_fails_at_the_callers_side(docket: Docket) -> None:
    with pytest.raises(TypeError):
        await docket.add(noop)(n for n in range(3))

    assert (await docket.snapshot()).total_tasks == 0


async def test_a_worker_elsewhere_with_the_same_url_and_name_runs_the_task(docket: Docket) -> None:
    notes = Notes()
    note = notes.task()

    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        elsewhere.register(note)
        await docket.add(note)("far")
        await run_everything(elsewhere)

    assert notes == ["far"]


async def test_dockets_of_other_names_on_one_server_do_not_mix(docket: Docket) -> None:
    async with Docket(name=f"{docket.name}-other", url=docket.url) as other:
        await docket.add(noop, key="k")()

        assert await other.get_execution("k") is None
        assert (await other.snapshot()).total_tasks == 0
