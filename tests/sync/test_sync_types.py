"""What type checkers say about a program that uses a sync docket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.test_types import Flagged, check, mypy, pyright

RIGHT = """
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import docket
from docket import Retry, ServerUnreachable, TaskCall, WouldDeadlock
from docket.sync import Docket, Execution, ExecutionProgress


class Animal: ...


class Cat(Animal): ...


async def charge(customer: int, amount: float, retry: Retry = Retry(attempts=2)) -> int:
    return customer


async def adopt() -> Cat:
    return Cat()


def resize(path: str, width: int = 100) -> Cat:
    return Cat()


class Service:
    async def send(self, to: str) -> None: ...


def greet(execution: Execution[Animal]) -> Animal:
    return execution.get_result()


shop = Docket("shop", url="memory://", execution_ttl=timedelta(hours=1), max_payload=1000)


def main() -> None:
    with Docket(name="shop", url="memory://") as other, shop.open() as opened:
        assert_type(opened, Docket)
        execution = other.add(charge)(1, amount=2.5)
        assert_type(execution, Execution[int])
        assert_type(execution.get_result(timeout=timedelta(seconds=5)), int)
        assert_type(execution.progress, ExecutionProgress)
        assert_type(other.replace(adopt, datetime.now(UTC), "cat")().get_result(), Cat)
        assert_type(other.add(Service().send)("ann").get_result(), None)
        assert_type(other.add("charge")(1, anything="goes"), Execution[Any])
        greet(other.add(adopt)())
        assert_type(other.add(resize)("cat.png", width=50).get_result(), Cat)
        assert_type(other.replace(resize, datetime.now(UTC), "cat")("cat.png"), Execution[Cat])
        found = other.get_execution("cat")
        assert_type(found, Execution[Any] | None)
        if found is not None:
            greet(found)
        call = other.call(charge)(1, 2.5)
        assert_type(call, TaskCall)
        assert_type(other.add_many([call]), list[Execution[Any]])
        for event in execution.subscribe():
            print(event["key"])
        try:
            execution.get_result()
        except (ServerUnreachable, WouldDeadlock) as error:
            print(error)
    assert_type(docket.sync.Docket("shop").add(charge)(1, 2.5).get_result(), int)
"""

WRONG = """
from datetime import datetime, timedelta

from docket.sync import Docket, Execution


async def send(number: int, text: str = "") -> None: ...


async def count() -> int:
    return 1


def resize(path: str) -> int:
    return 1


def wants_text(found: Execution[str]) -> None: ...


def text(counted: Execution[int]) -> str:
    return counted.get_result()  # wrong


async def awaits(docket: Docket) -> None:
    await docket.add(send)(1)  # wrong


def main(docket: Docket, now: datetime) -> None:
    docket.add(send)("1")  # wrong
    docket.add(resize)(1)  # wrong
    wants_text(docket.add(resize)("a"))  # wrong
    docket.add(send)()  # wrong
    docket.add(send)(1, texts="")  # wrong
    docket.add(send)(1, "", 3)  # wrong
    docket.add(send, when=timedelta(seconds=5))(1)  # wrong
    docket.add(send, key=1)(1)  # wrong
    docket.replace(send, now, "k")("1")  # wrong
    docket.replace(send, "k")(1)  # wrong
    docket.call(send)("1")  # wrong
    docket.add_many([docket.add(send)(1)])  # wrong
    counted = docket.add(count)()
    wants_text(counted)  # wrong
    counted.get_result().upper()  # wrong
    counted.get_result(timeout=5)  # wrong
    counted.state = None  # wrong
    docket.get_execution("k").get_result()  # wrong
    Docket(nmae="shop")  # wrong
    Docket("shop", execution_ttl=5)  # wrong
"""


@pytest.mark.parametrize("checker", [pyright, mypy])
def test_right_programs_pass_and_each_mistake_is_flagged_on_its_line(
    tmp_path: Path, checker: Callable[[Path], Flagged]
) -> None:
    check(tmp_path, checker, RIGHT, WRONG)
