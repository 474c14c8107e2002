"""The assertions for users' tests."""

import pytest

from docket import Docket, testing
from tests.running import run_everything
from tests.times import later


async def serve(customer: str, region: str = "north") -> None: ...


async def other() -> None: ...


@pytest.mark.parametrize("function", [serve, "serve"], ids=["function", "name"])
async def test_a_scheduled_task_is_found(docket: Docket, function: object) -> None:
    await docket.add(serve, key="k")("ada", region="south")

    await testing.assert_task_scheduled(docket, function)  # pyright: ignore[reportArgumentType]
    await testing.assert_task_scheduled(docket, serve, args=("ada",))
    await testing.assert_task_scheduled(docket, serve, kwargs={"region": "south"})
    await testing.assert_task_scheduled(docket, serve, key="k")
    await testing.assert_task_scheduled(docket, serve, args=("ada",), kwargs={"region": "south"}, key="k")


async def test_a_task_for_later_counts_as_scheduled(docket: Docket) -> None:
    await docket.add(serve, when=later())("ada")

    await testing.assert_task_scheduled(docket, serve, args=("ada",))


@pytest.mark.parametrize(
    "wish",
    [{"args": ("bob",)}, {"kwargs": {"region": "east"}}, {"key": "another"}],
    ids=["args", "kwargs", "key"],
)
async def test_a_task_that_is_not_there_is_an_assertion_error_that_shows_what_is(
    docket: Docket, wish: dict[str, object]
) -> None:
    await docket.add(serve, key="the-key")("ada", region="south")

    with pytest.raises(AssertionError) as caught:
        await testing.assert_task_scheduled(docket, serve, **wish)  # pyright: ignore[reportArgumentType]

    text = str(caught.value)
    assert "serve" in text
    assert "ada" in text
    assert "the-key" in text


async def test_another_task_is_shown_when_the_wanted_one_is_missing(docket: Docket) -> None:
    await docket.add(other, key="the-key")()

    with pytest.raises(AssertionError, match="other"):
        await testing.assert_task_scheduled(docket, serve)


async def test_an_absent_task_is_confirmed(docket: Docket) -> None:
    await docket.add(serve, key="k")("ada")

    await testing.assert_task_not_scheduled(docket, other)
    await testing.assert_task_not_scheduled(docket, "other")
    await testing.assert_task_not_scheduled(docket, serve, args=("bob",))
    await testing.assert_task_not_scheduled(docket, serve, kwargs={"region": "south"})
    await testing.assert_task_not_scheduled(docket, serve, key="another")


async def test_a_present_task_is_an_assertion_error_that_shows_it(docket: Docket) -> None:
    await docket.add(serve, key="the-key")("ada")

    with pytest.raises(AssertionError) as caught:
        await testing.assert_task_not_scheduled(docket, serve)

    assert "serve" in str(caught.value)
    assert "the-key" in str(caught.value)


async def test_tasks_are_counted(docket: Docket) -> None:
    await docket.add(serve)("ada")
    await docket.add(serve, when=later())("bob")
    await docket.add(other)()

    await testing.assert_task_count(docket, count=3)
    await testing.assert_task_count(docket, serve, count=2)
    await testing.assert_task_count(docket, "other", count=1)


async def test_a_wrong_count_is_an_assertion_error_that_says_both(docket: Docket) -> None:
    await docket.add(serve)("ada")

    with pytest.raises(AssertionError) as caught:
        await testing.assert_task_count(docket, serve, count=5)

    text = str(caught.value)
    assert "5" in text
    assert "1" in text
    assert "serve" in text


async def test_an_empty_docket_is_confirmed(docket: Docket) -> None:
    await testing.assert_no_tasks(docket)


async def test_a_docket_with_tasks_is_an_assertion_error_that_shows_them(docket: Docket) -> None:
    await docket.add(serve, key="the-key")("ada")

    with pytest.raises(AssertionError) as caught:
        await testing.assert_no_tasks(docket)

    assert "serve" in str(caught.value)


async def test_tasks_that_ran_are_no_longer_there(docket: Docket) -> None:
    await docket.add(serve)("ada")
    await run_everything(docket)

    await testing.assert_no_tasks(docket)
    await testing.assert_task_not_scheduled(docket, serve)


async def test_some_of_the_keywords_are_enough_to_find_a_task(docket: Docket) -> None:
    await docket.add(serve)(customer="ada", region="south")

    await testing.assert_task_scheduled(docket, serve, kwargs={"region": "south"})
    await testing.assert_task_scheduled(docket, serve, kwargs={})
    with pytest.raises(AssertionError):
        await testing.assert_task_not_scheduled(docket, serve, kwargs={"customer": "ada"})
    await testing.assert_task_not_scheduled(docket, serve, kwargs={"region": "south", "customer": "bob"})
    await testing.assert_task_not_scheduled(docket, serve, kwargs={"floor": 3})
