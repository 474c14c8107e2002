"""Telling a docket which functions it may run."""

import functools
import sys
import types
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, Retry, Timeout, Worker
from tests.running import run_everything

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

    docket.register(count, names=["count_by_function", "reckon"])
    await docket.add("count_by_function")(1)
    await docket.add("reckon")(2)
    await run_everything(docket)

    assert sorted(seen) == [1, 2]


async def test_an_aliased_task_is_recorded_under_the_name_it_was_added_by(docket: Docket) -> None:
    docket.register(apples, names=["count_by_function"])

    execution = await docket.add("count_by_function")()

    assert execution.function_name == "count_by_function"


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


def another(name: str) -> Callable[[], Coroutine[Any, Any, None]]:
    async def apples() -> None: ...

    apples.__module__, apples.__qualname__ = name, "apples"
    return apples


@pytest.mark.parametrize(
    "clash", [lambda docket, function: docket.register(function), lambda docket, function: docket.add(function)]
)
async def test_the_warning_shows_the_callers_line_both_functions_and_a_way_out(
    docket: Docket, clash: Callable[[Docket, Any], Any]
) -> None:
    docket.register(apples)

    with pytest.warns(UserWarning, match="task 'apples'") as caught:
        clash(docket, another("shop.orchard"))

    (warning,) = caught
    told = str(warning.message)
    assert warning.filename == __file__
    assert f"was {__name__}.apples ({__file__}:" in told
    assert f"is now shop.orchard.apples ({__file__}:" in told
    assert "docket.register(apples, names=['orchard_apples'])" in told


async def test_functions_of_one_name_behind_one_decorator_are_told_apart(docket: Docket) -> None:
    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def shell() -> None:
            await function()

        return shell

    async def pears() -> None: ...

    docket.register(decorated(pears))
    with pytest.warns(UserWarning, match="task 'pears' was"):
        docket.register(decorated(globals()["pears"]))


@pytest.fixture
def orchards() -> Iterator[tuple[str, str]]:
    """Two modules that have a function of one name each."""
    names = ("tests_orchard_north", "tests_orchard_south")
    for name in names:
        module: Any = types.ModuleType(name)
        module.tasks = [another(name)]
        sys.modules[name] = module
    yield f"{names[0]}:tasks", f"{names[1]}:tasks"
    for name in names:
        del sys.modules[name]


async def test_two_functions_of_one_name_in_what_a_worker_program_loads_are_an_error(
    docket: Docket, url: str, orchards: tuple[str, str]
) -> None:
    # Both come from one line of this file, which is how a module looks that was loaded twice.
    south: Any = sys.modules["tests_orchard_south"]

    async def apples() -> None: ...

    south.tasks = [apples]

    with pytest.raises(ValueError, match=r"two functions have the name 'apples': tests_orchard_north\.apples .*north:"):
        await Worker.run(docket.name, url, tasks=list(orchards), until_finished=True)


async def test_the_same_function_in_two_collections_is_one(docket: Docket, orchards: tuple[str, str]) -> None:
    for path in (*orchards, *orchards):
        docket.register_collection(path, unique=True)

    assert "apples" in docket.tasks


async def test_a_program_may_replace_a_task_by_a_second_collection(docket: Docket, orchards: tuple[str, str]) -> None:
    docket.register_collection(f"{__name__}:fruit")

    with pytest.warns(UserWarning, match="was .* and is now"):
        docket.register_collection(orchards[0])
