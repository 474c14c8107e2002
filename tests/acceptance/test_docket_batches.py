"""Adding and replacing many tasks at once."""

import pytest

from docket import Disposition, Docket
from tests.running import run_everything
from tests.times import later, now, soon


async def noop(*args: object) -> None: ...


async def test_a_call_is_a_description_that_schedules_nothing(docket: Docket) -> None:
    when = later()

    call = docket.call(noop, when=when, key="k")(1)

    assert (call.function, call.args, call.kwargs, call.key, call.when) == (noop, (1,), {}, "k", when)
    assert await docket.get_execution("k") is None


async def test_many_tasks_are_added_in_one_go(docket: Docket) -> None:
    seen: list[int] = []

    async def note(n: int) -> None:
        seen.append(n)

    executions = await docket.add_many(docket.call(note, key=f"k{n}")(n) for n in range(25))
    await run_everything(docket)

    assert [execution.key for execution in executions] == [f"k{n}" for n in range(25)]
    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    assert sorted(seen) == list(range(25))


@pytest.mark.parametrize("chunk_size", [1, 2, 7, None])
async def test_any_chunk_size_gives_the_same(docket: Docket, chunk_size: int | None) -> None:
    executions = await docket.add_many([docket.call(noop, when=later())(n) for n in range(7)], chunk_size=chunk_size)

    assert [execution.args for execution in executions] == [(n,) for n in range(7)]
    assert (await docket.snapshot()).total_tasks == 7


@pytest.mark.parametrize("chunk_size", [0, -1])
async def test_a_chunk_size_below_one_is_refused(docket: Docket, chunk_size: int) -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        await docket.add_many([docket.call(noop)()], chunk_size=chunk_size)


async def test_a_name_works_in_a_batch(docket: Docket) -> None:
    docket.register(noop, names=["nothing"])

    (execution,) = await docket.add_many([docket.call("nothing")()])

    assert execution.function_name == "nothing"


async def test_each_task_of_a_batch_is_judged_on_its_own(docket: Docket) -> None:
    await docket.add(noop, when=later(), key="taken")()

    executions = await docket.add_many([docket.call(noop, key="taken")(), docket.call(noop, key="free")()])

    assert [execution.disposition for execution in executions] == [
        Disposition.ALREADY_SCHEDULED,
        Disposition.SCHEDULED,
    ]


async def test_a_task_that_cannot_be_sent_marks_only_itself(docket: Docket) -> None:
    good, bad, fine = await docket.add_many(
        [docket.call(noop)(1), docket.call(noop)(n for n in range(3)), docket.call(noop)(2)]
    )

    assert (good.disposition, fine.disposition) == (Disposition.SCHEDULED, Disposition.SCHEDULED)
    assert bad.disposition == Disposition.FAILED
    assert isinstance(bad.schedule_exception, TypeError)


async def test_many_tasks_are_replaced_in_one_go(docket: Docket) -> None:
    seen: list[str] = []

    async def note(value: str) -> None:
        seen.append(value)

    await docket.add_many([docket.call(note, when=later(), key=f"k{n}")("old") for n in range(3)])
    executions = await docket.replace_many([docket.call(note, when=soon(), key=f"k{n}")(f"new {n}") for n in range(3)])
    await run_everything(docket)

    assert {execution.disposition for execution in executions} == {Disposition.SCHEDULED}
    assert sorted(seen) == ["new 0", "new 1", "new 2"]


async def test_replacing_many_adds_those_that_are_not_there(docket: Docket) -> None:
    await docket.replace_many([docket.call(noop, when=now(), key="fresh")()])

    assert await docket.get_execution("fresh") is not None
