"""The tasks every docket knows."""

import logging
import re
import time

import pytest

from docket import Docket, ExecutionState, Worker
from docket.tasks import fail, sleep, standard_tasks, trace


async def test_every_docket_knows_them(docket: Docket) -> None:
    assert standard_tasks == [trace, fail, sleep]
    assert {"trace": trace, "fail": fail, "sleep": sleep}.items() <= docket.tasks.items()


async def test_trace_logs_its_message_and_its_way(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="docket.task.trace"):
        execution = await docket.add("trace", key="k")("hello")
        await worker.run_until_finished()
    await execution.sync()

    assert execution.state is ExecutionState.COMPLETED
    [record] = [record for record in caplog.records if record.name == "docket.task.trace"]
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith(f"hello: 'k' on docket {docket.name!r}, due ")
    assert record.getMessage().endswith(f"runs on worker {worker.name!r}")


async def test_fail_fails_twice_with_its_message(docket: Docket, worker: Worker) -> None:
    execution = await docket.add(fail)("boom")
    await worker.run_until_finished()

    # `match` also looks at the notes, and the traceback is one.
    with pytest.raises(RuntimeError) as raised:
        await execution.get_result()
    assert re.fullmatch(r"boom: .*attempt 2", str(raised.value))
    await execution.sync()
    assert (execution.state, execution.attempt) == (ExecutionState.FAILED, 2)


async def test_sleep_sleeps(docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="docket.task.sleep"):
        began = time.monotonic()
        execution = await docket.add(sleep)(0.1)
        await worker.run_until_finished()

    assert time.monotonic() - began >= 0.1
    await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert "Sleeping for 0.1 seconds" in caplog.text
