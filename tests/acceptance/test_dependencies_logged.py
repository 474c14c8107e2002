"""Which arguments the log lines show, and how."""

import logging
from typing import Annotated, Any

import pytest

from docket import Docket, Logged
from tests.running import run_everything


async def logged_call(
    docket: Docket, caplog: pytest.LogCaptureFixture, function: Any, *args: Any, **kwargs: Any
) -> str:
    with caplog.at_level(logging.INFO, logger="docket.worker"):
        await docket.add(function, key="k")(*args, **kwargs)
        await run_everything(docket)
    (line,) = [record.getMessage() for record in caplog.records if "↪" in record.getMessage()]
    return line


async def test_only_logged_arguments_are_shown(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def pay(customer: Annotated[str, Logged], card: str, *, amount: Annotated[int, Logged()]) -> None: ...

    line = await logged_call(docket, caplog, pay, "ada", "4111", amount=5)

    assert line.endswith("pay('ada', ..., amount=5){k}")
    assert "4111" not in line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ([1, 2, 3], "[len 3]"),
        ((1, 2), "(len 2)"),
        ({"a": 1}, "{len 1}"),
        ({1, 2, 3, 4}, "{len 4}"),
        ([], "[len 0]"),
    ],
)
async def test_of_a_collection_only_the_length_may_be_shown(
    docket: Docket, caplog: pytest.LogCaptureFixture, value: Any, shown: str
) -> None:
    async def pack(things: Annotated[Any, Logged(length_only=True)]) -> None: ...

    line = await logged_call(docket, caplog, pack, value)

    assert line.endswith(f"pack({shown}){{k}}")


async def test_the_whole_of_a_collection_is_shown_by_default(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def pack(things: Annotated[list[int], Logged]) -> None: ...

    line = await logged_call(docket, caplog, pack, [1, 2])

    assert line.endswith("pack([1, 2]){k}")


async def test_an_argument_by_keyword_is_shown_by_its_length_too(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async def pack(*, things: Annotated[list[int], Logged(length_only=True)]) -> None: ...

    line = await logged_call(docket, caplog, pack, things=[1, 2])

    assert line.endswith("pack(things=[len 2]){k}")


async def test_what_has_no_length_is_shown_as_it_is(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def pack(thing: Annotated[int, Logged(length_only=True)]) -> None: ...

    line = await logged_call(docket, caplog, pack, 7)

    assert line.endswith("pack(7){k}")


async def test_what_is_gathered_is_shown_by_its_own_mark(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def pay(*cards: str, amount: Annotated[int, Logged] = 1, **notes: Annotated[str, Logged]) -> None: ...

    line = await logged_call(docket, caplog, pay, "4111", "4222", "4333", amount=5, due="today")

    assert line.endswith("pay(..., ..., ..., amount=5, due='today'){k}")


async def test_all_that_is_gathered_is_shown_if_it_may_be(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def pay(card: str, *amounts: Annotated[int, Logged], note: str = "") -> None: ...

    line = await logged_call(docket, caplog, pay, "4111", 1, 2, 3, note="hush")

    assert line.endswith("pay(..., 1, 2, 3, note=...){k}")


async def test_the_line_of_the_end_shows_what_the_task_has_made_of_an_argument(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async def extend(values: Annotated[list[int], Logged()], **more: Annotated[list[int], Logged()]) -> None:
        for one in (values, *more.values()):
            one.append(2)

    await logged_call(docket, caplog, extend, [1], others=[1])

    (end,) = [record.getMessage() for record in caplog.records if "↩" in record.getMessage()]
    assert end.endswith("extend([1, 2], others=[1, 2]){k}")


async def test_a_call_with_very_many_arguments_is_shown_without_them(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async def add_up(*numbers: int) -> None: ...

    for count in (0, 50, 51):
        caplog.clear()
        line = await logged_call(docket, caplog, add_up, *range(count))
        assert line.endswith(f"add_up({', '.join(['...'] * count)}){{k}}")
