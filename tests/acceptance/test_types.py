"""What a type checker says about a program that uses docket."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

RIGHT = """
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, assert_type

from docket import (
    Agenda, ConcurrencyLimit, CurrentDocket, CurrentExecution, Depends, Docket, Execution, ExponentialRetry, Progress,
    Retry, Shared, TaskKey, TaskLogger, Timeout, Worker,
)
from docket.execution import ExecutionProgress


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


async def main() -> None:
    assert_type(Depends(connect), Database)
    assert_type(Depends(plain), Database)
    async with Docket(name="shop", url="memory://") as docket, Worker(docket) as worker:
        assert_type(await docket.add(charge)(1, 2.5), Execution)
        await docket.add(charge, when=datetime.now(UTC), key="k")(customer=1, amount=2.5, db=Database())
        await docket.replace(charge, datetime.now(UTC), "k")(1, amount=2.5)
        await docket.add(Service().send)("ann")
        await docket.add("charge")(1, anything="goes")
        await docket.add_many(docket.call(charge)(n, 2.5) for n in range(3))
        agenda = Agenda()
        agenda.add(charge)(1, 2.5)
        await agenda.scatter(docket, over=timedelta(hours=1))
        await worker.run_until_finished()
"""

WRONG = """
from datetime import datetime, timedelta

from docket import Agenda, Depends, Docket, Retry


def connect() -> str:
    return ""


def blocking(number: int) -> int:
    return number


async def send(number: int, text: str = "") -> None: ...


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
    await docket.add(blocking)(1)  # wrong
    await docket.add(send, when=timedelta(seconds=5))(1)  # wrong
    await docket.add(send, key=1)(1)  # wrong
    await docket.replace(send, now, "k")("1")  # wrong
    docket.call(send)("1")  # wrong
    docket.register(blocking)  # wrong
    Agenda().add(send)("1")  # wrong
"""


def test_right_programs_pass_and_each_mistake_is_flagged_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    flagged = check(tmp_path)

    assert flagged["right.py"] == {}
    mistakes = {number for number, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")}
    assert flagged["wrong.py"].keys() == mistakes, flagged["wrong.py"]


def check(folder: Path) -> dict[str, dict[int, str]]:
    """By file, the lines with errors and what is wrong there."""
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    flagged: dict[str, dict[int, str]] = {"right.py": {}, "wrong.py": {}}
    for found in report["generalDiagnostics"]:
        flagged[Path(found["file"]).name][found["range"]["start"]["line"] + 1] = found["message"]
    assert report["summary"]["filesAnalyzed"] == 2, report
    return flagged
