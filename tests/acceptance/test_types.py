"""What type checkers say about a program that uses docket."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import docket
from docket import errors

RIGHT = """
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, assert_type

from docket import (
    Agenda, ConcurrencyLimit, CurrentDocket, CurrentExecution, Depends, Docket, Execution, ExecutionProgress,
    ExponentialRetry, Perpetual, Progress, ResultExpired, Retry, ServerUnreachable, Shared, TaskKey, TaskLogger, Timeout,
    Worker, check_cancelled, run_async,
)


class Database:
    async def execute(self, query: str) -> int:
        return len(query)


@asynccontextmanager
async def connect() -> AsyncGenerator[Database]:
    yield Database()


def plain() -> Database:
    return Database()


async def charge(
    customer: Annotated[int, ConcurrencyLimit(1)],
    amount: float,
    db: Database = Depends(connect),
    other: Database = Depends(plain),
    pool: Database = Shared(connect),
    key: str = TaskKey(),
    docket: Docket = CurrentDocket(),
    execution: Execution = CurrentExecution(),
    retry: Retry = ExponentialRetry(attempts=5),
    timeout: Timeout = Timeout(timedelta(seconds=30)),
    progress: ExecutionProgress = Progress(),
) -> int:
    log = TaskLogger()
    log.info("%s %s", key, retry.attempt)
    await progress.increment()
    return await db.execute(docket.name + execution.key)


class Service:
    async def send(self, to: str) -> None: ...


def resize(path: str, progress: Progress = Progress(), docket: Docket = CurrentDocket()) -> bytes:
    progress.increment()
    check_cancelled()
    assert_type(run_async(docket.add(charge)(1, 2.5)), Execution[int])
    return path.encode()


async def handle(payload: dict[str, Any], retry: Any = None) -> float:
    return 1.5


class Press:
    async def fold(self, sheet: Any) -> int:
        return 1

    def print(self, page: int) -> None: ...


class Animal: ...


class Cat(Animal): ...


async def adopt(perpetual: Perpetual = Perpetual()) -> Cat:
    return Cat()


async def greet(execution: Execution[Animal]) -> Animal:
    return await execution.get_result()


def keys(executions: list[Execution]) -> list[str]:
    return [execution.key for execution in executions]


async def results(docket: Docket) -> None:
    execution = await docket.add(charge)(1, 2.5)
    assert_type(execution, Execution[int])
    assert_type(await execution.get_result(timeout=timedelta(seconds=5)), int)
    assert_type(await (await docket.replace(adopt, datetime.now(UTC), "cat")()).get_result(), Cat)
    assert_type(await (await docket.add(Service().send)("ann")).get_result(), None)
    assert_type(await docket.add("charge")(1), Execution[Any])
    assert_type(await docket.add(resize)("a.png"), Execution[bytes])
    assert_type(await (await docket.replace(resize, datetime.now(UTC), "image")("a.png")).get_result(), bytes)
    assert_type(await docket.add(Press().print)(1), Execution[None])
    assert_type(await docket.add(Press().fold)(1), Execution[int])
    assert_type(await docket.add(handle)({"a": 1}), Execution[float])
    found = await docket.get_execution("cat")
    assert_type(found, Execution[Any] | None)
    if found is not None:
        assert_type(await found.get_result(), Any)
        await greet(found)
        keys([found])
    await greet(await docket.add(adopt)())
    try:
        await execution.get_result()
    except (ResultExpired, ServerUnreachable) as error:
        print(error)


async def main() -> None:
    assert_type(Depends(connect), Database)
    assert_type(Depends(plain), Database)
    async with Docket(name="shop", url="memory://") as docket, Worker(docket) as worker:
        await results(docket)
        await docket.add(charge, when=datetime.now(UTC), key="k")(customer=1, amount=2.5, db=Database())
        await docket.replace(charge, datetime.now(UTC), "k")(1, amount=2.5)
        await docket.add(Service().send)("ann")
        await docket.add("charge")(1, anything="goes")
        await docket.add_many(docket.call(charge)(n, 2.5) for n in range(3))
        agenda = Agenda()
        agenda.add(charge)(1, 2.5)
        agenda.add(resize)("a.png")
        docket.register(resize)
        await docket.add_many([docket.call(resize)("a.png")])
        await agenda.scatter(docket, over=timedelta(hours=1))
        await worker.run_until_finished()
"""

WRONG = """
from datetime import datetime, timedelta

from docket import Agenda, Depends, Docket, Execution, Retry


def connect() -> str:
    return ""


def blocking(number: int) -> int:
    return number


async def send(number: int, text: str = "") -> None: ...


async def count() -> int:
    return 1


async def anything(found: Execution[object]) -> None: ...


async def wants_text(found: Execution[str]) -> None: ...


async def text(counted: Execution[int]) -> str:
    return await counted.get_result()  # wrong


async def depends(db: int = Depends(connect)) -> None: ...  # wrong


async def waits(retry: Retry = Retry(attempts=3, delay=5)) -> None: ...  # wrong


async def main(docket: Docket, now: datetime) -> None:
    await docket.add(send)("1")  # wrong
    await docket.add(send)()  # wrong
    await docket.add(send)(1, 2)  # wrong
    await docket.add(send)(1, texts="")  # wrong
    await docket.add(send)(1, "", 3)  # wrong
    await docket.add(send)  # wrong
    docket.add(send)(1)  # wrong
    docket.replace(send, now, "k")(1)  # wrong
    await docket.add(blocking)("1")  # wrong
    await docket.replace(blocking, now, "k")()  # wrong
    docket.call(blocking)("1")  # wrong
    await wants_text(await docket.add(blocking)(1))  # wrong
    docket.add(blocking)(1)  # wrong
    await docket.add(send, when=timedelta(seconds=5))(1)  # wrong
    await docket.add(send, key=1)(1)  # wrong
    await docket.replace(send, now, "k")("1")  # wrong
    docket.call(send)("1")  # wrong
    docket.register(1)  # wrong
    Agenda().add(send)("1")  # wrong
    Agenda().add(blocking)("1")  # wrong
    counted = await docket.add(count)()
    await anything(counted)
    await wants_text(counted)  # wrong
    (await counted.get_result()).upper()  # wrong
    await counted.get_result(timeout=5)  # wrong
    replaced = await docket.replace(count, now, "k")()
    await wants_text(replaced)  # wrong
    found = await docket.get_execution("k")
    await found.get_result()  # wrong
"""


Flagged = dict[str, dict[int, str]]


def pyright(folder: Path) -> Flagged:
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    report = json.loads(run("basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", ".", folder=folder))
    assert report["summary"]["filesAnalyzed"] == 2, report
    found: list[dict[str, Any]] = report["generalDiagnostics"]
    return by_file((Path(f["file"]).name, f["range"]["start"]["line"] + 1, f["message"]) for f in found)


def mypy(folder: Path) -> Flagged:
    output = run("mypy", "--strict", "--output", "json", "--cache-dir", "cache", "right.py", "wrong.py", folder=folder)
    found = [json.loads(line) for line in output.splitlines()]
    return by_file((f["file"], f["line"], f["message"]) for f in found if f["severity"] == "error")


@pytest.mark.parametrize("checker", [pyright, mypy])
def test_right_programs_pass_and_each_mistake_is_flagged_on_its_line(
    tmp_path: Path, checker: Callable[[Path], Flagged]
) -> None:
    check(tmp_path, checker, RIGHT, WRONG)


def test_every_type_of_the_package_is_known_to_type_checkers(tmp_path: Path) -> None:
    output = run("basedpyright", "--verifytypes", "docket", "--ignoreexternal", "--outputjson", folder=tmp_path)
    completeness = json.loads(output)["typeCompleteness"]

    assert completeness["exportedSymbolCounts"]["withKnownType"] > 1000, "the package was not found"
    assert [symbol["name"] for symbol in completeness["symbols"] if not symbol["isTypeKnown"]] == []
    assert completeness["completenessScore"] == 1


def test_every_error_can_be_imported_from_the_package() -> None:
    found = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    defined = {name for name, value in found.items() if value.__module__ == errors.__name__}

    assert defined <= set(docket.__all__)


def check(folder: Path, checker: Callable[[Path], Flagged], right: str, wrong: str) -> None:
    """Nothing is flagged in the right program, and in the wrong one exactly the marked lines."""
    (folder / "right.py").write_text(right)
    (folder / "wrong.py").write_text(wrong)

    flagged = checker(folder)

    assert flagged["right.py"] == {}
    mistakes = {number for number, line in enumerate(wrong.splitlines(), 1) if line.endswith("# wrong")}
    assert flagged["wrong.py"].keys() == mistakes, flagged["wrong.py"]


def run(module: str, *arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        # Where pyright looks for the Python whose packages it checks.
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout


def by_file(found: Iterable[tuple[str, int, str]]) -> Flagged:
    """By file, the lines with errors and what is wrong there."""
    flagged: Flagged = {"right.py": {}, "wrong.py": {}}
    for file, line, message in found:
        flagged[file][line] = message
    return flagged
