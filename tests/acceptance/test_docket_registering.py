"""Telling a docket which functions it may run."""

from datetime import timedelta

import pytest

from docket import Docket, Retry, Timeout

from .waiting import run_everything

calls: list[str] = []


async def apples() -> None:
    calls.append("apples")


async def pears() -> None:
    calls.append("pears")


fruit = [apples, pears]


async def test_a_registered_function_is_found_by_its_name(docket: Docket) -> None:
    docket.register(apples)

    assert docket.tasks["apples"] is apples


@pytest.mark.parametrize("name", ["trace", "fail", "sleep"])
async def test_the_standard_tasks_are_known_from_the_start(docket: Docket, name: str) -> None:
    assert name in docket.tasks


async def test_a_function_may_be_registered_under_other_names(docket: Docket) -> None:
    seen: list[int] = []

    async def count(n: int) -> None:
        seen.append(n)

    docket.register(count, names=["tally", "reckon"])
    await docket.add("tally")(1)
    await docket.add("reckon")(2)
    await run_everything(docket)

    assert sorted(seen) == [1, 2]


async def test_an_aliased_task_is_recorded_under_the_name_it_was_added_by(docket: Docket) -> None:
    docket.register(apples, names=["tally"])

    execution = await docket.add("tally")()

    assert execution.function_name == "tally"


async def test_a_collection_registers_each_of_its_functions(docket: Docket) -> None:
    docket.register_collection(f"{__name__}:fruit")

    assert docket.tasks["apples"] is apples
    assert docket.tasks["pears"] is pears


async def test_a_function_can_be_registered_before_the_docket_is_entered(name: str, url: str) -> None:
    docket = Docket(name=name, url=url)
    docket.register(apples)

    async with docket:
        assert "apples" in docket.tasks


async def test_two_dependencies_of_a_single_kind_are_refused_at_registration(docket: Docket) -> None:
    async def twice_timed(
        a: Timeout = Timeout(timedelta(seconds=1)), b: Timeout = Timeout(timedelta(seconds=2))
    ) -> None: ...

    with pytest.raises(ValueError, match="Timeout"):
        docket.register(twice_timed)


async def test_two_retries_are_refused_when_added_without_registering(docket: Docket) -> None:
    async def twice_retried(a: Retry = Retry(), b: Retry = Retry(attempts=2)) -> None: ...

    with pytest.raises(ValueError, match="Retry"):
        await docket.add(twice_retried)()


async def test_another_function_under_a_taken_name_warns_and_names_both(docket: Docket) -> None:
    async def plums() -> None: ...

    docket.register(apples, names=["fruit"])
    with pytest.warns(Warning, match=r"(?s)apples.*plums|plums.*apples"):
        docket.register(plums, names=["fruit"])


async def test_registering_the_same_function_again_is_silent(docket: Docket) -> None:
    docket.register(apples)
    docket.register(apples)

    assert docket.tasks["apples"] is apples
