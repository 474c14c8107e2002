"""What a worker writes to the log."""

import asyncio
import logging
import re
from datetime import timedelta
from typing import Annotated

import pytest

from docket import Docket, Logged, Perpetual, Retry, Worker
from tests.running import run_everything, running
from tests.waiting import ends, within


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="docket")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about tasks; which of the two loggers wrote one is left open."""
    loggers = ("docket.worker", "docket.dependencies")
    messages = [record.getMessage() for record in caplog.records if record.name in loggers]
    return [message for message in messages if message[0] in "↪↬↩↫🗙✗"]


def the_line(caplog: pytest.LogCaptureFixture, sign: str) -> str:
    (line,) = [line for line in lines(caplog) if line.startswith(sign)]
    return line


@pytest.mark.parametrize("way", ["run_forever", "run_until_finished", "run_at_most"])
async def test_a_worker_that_starts_logs_its_name_and_its_tasks(
    docket: Docket, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    async def greet(who: str, times: int = 2, retry: Retry = Retry()) -> None: ...

    docket.register(greet)
    async with Worker(docket, name="Ada") as worker:
        if way == "run_forever":
            async with running(worker):
                await within((await docket.add(greet)("jane")).get_result())
        else:
            await ends(worker.run_at_most({}) if way == "run_at_most" else worker.run_until_finished())

    messages = [(r.levelname, r.getMessage()) for r in caplog.records if r.name == "docket.worker"]
    assert messages[0] == ("INFO", "Starting worker 'Ada' with the following tasks:")
    assert [message for _, message in messages[1 : len(docket.tasks) + 1]] == [
        message for _, message in messages if message.startswith("* ")
    ]
    assert ("INFO", "* greet(who: str, times: int = 2, ...)") in messages


async def test_a_default_that_cannot_be_shown_keeps_no_worker_from_starting(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("do not look at me")

    async def greet(who: object = Shy()) -> str:
        return "hello"

    execution = await docket.add(greet)()
    await run_everything(docket)

    assert await execution.get_result() == "hello"
    assert "* greet(...)" in caplog.messages


async def test_start_and_end_of_a_task_are_logged(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def greet(who: Annotated[str, Logged()], secret: str) -> None: ...

    await docket.add(greet, key="k")("jane", "hunter2")
    await run_everything(docket)

    start, end = the_line(caplog, "↪"), the_line(caplog, "↩")
    assert re.fullmatch(r"↪ \[\s*-?[\d.]+\s?\w+\] greet\(.*'jane'.*\)\{k\}", start)
    assert re.fullmatch(r"↩ \[\s*-?[\d.]+\s?\w+\] greet\(.*'jane'.*\)\{k\}", end)
    assert "hunter2" not in caplog.text


async def test_a_retry_is_logged_with_signs_of_its_own(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        tries.append(retry.attempt)
        if retry.attempt == 1:
            raise ValueError("once")

    await docket.add(flaky, key="k")()
    await run_everything(docket)

    signs = [line[0] for line in lines(caplog)]
    assert (signs[0], signs[-2:]) == ("↪", ["↬", "↩"])
    assert "↫" in signs


async def test_a_perpetual_tasks_end_says_that_it_comes_again(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=1))) -> None: ...

    await docket.add(tick, key="ticker")()
    await ends(worker.run_at_most({"ticker": 2}))

    assert any(line.startswith("↫") and line.endswith("{ticker}") for line in lines(caplog))


async def test_a_cancelled_run_is_logged(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    started, over = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    await docket.add(work, key="k")()
    async with running(worker):
        await within(started.wait())
        await docket.cancel("k")
        await within(over.wait())

    line = the_line(caplog, "✗")
    assert "work(){k}" in line
    assert "(cancelled)" in line


async def test_a_struck_task_is_logged(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def forbidden() -> None: ...

    await docket.add(forbidden, key="k")()
    await docket.strike(forbidden)
    await run_everything(docket)

    assert "forbidden(){k}" in the_line(caplog, "🗙")


async def test_a_failure_is_logged_with_its_traceback(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def burn() -> None:
        raise ValueError("smoke in the kitchen")

    await docket.add(burn, key="k")()
    await run_everything(docket)

    failures = [record for record in caplog.records if record.exc_info and "burn" in record.getMessage()]
    assert [record.levelno for record in failures] == [logging.ERROR]
    assert failures[0].name in ("docket.worker", "docket.dependencies")


async def test_an_unknown_task_is_warned_about(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async def stranger() -> None: ...

    await docket.add(stranger)()
    async with Docket(name=docket.name, url=docket.url) as elsewhere:
        await run_everything(elsewhere)

    assert any(record.levelno >= logging.WARNING and "stranger" in record.getMessage() for record in caplog.records)


async def test_a_run_that_will_be_retried_is_reported_by_the_dependencies(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    async def flaky(retry: Retry = Retry(attempts=2)) -> None:
        if retry.attempt == 1:
            raise ValueError("once")

    await docket.add(flaky)()
    await run_everything(docket)

    told = [(record.getMessage()[0], record.name, record.levelname, bool(record.exc_info)) for record in caplog.records]
    assert [line for line in told if line[0] in "↪↬↩↫"] == [
        ("↪", "docket.worker", "INFO", False),
        ("↫", "docket.dependencies", "WARNING", False),
        ("↬", "docket.worker", "INFO", False),
        ("↩", "docket.worker", "INFO", False),
    ]
