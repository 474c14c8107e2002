"""The class method that is a whole worker program."""

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from docket import Docket, Perpetual, Worker
from tests.waiting import ends

ran: list[tuple[str, int]] = []


async def note(name: str, n: int) -> None:
    ran.append((name, n))


async def catch_all(name: str, n: int, **kwargs: Any) -> None:
    ran.append((f"caught {name}", n))


tasks = [note]


async def test_a_worker_program_runs_the_tasks_of_its_collections(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as docket:
        await docket.add(note)(name, 1)
        await ends(Worker.run(docket_name=name, url=url, tasks=[f"{__name__}:tasks"], until_finished=True))

    assert (name, 1) in ran


async def test_a_worker_program_has_a_fallback_by_path(name: str, url: str) -> None:
    async def unheard_of(name: str, n: int) -> None: ...

    async with Docket(name=name, url=url) as docket:
        await docket.add(unheard_of)(name, 2)
        await ends(
            Worker.run(
                docket_name=name,
                url=url,
                tasks=[f"{__name__}:tasks"],
                until_finished=True,
                fallback_task=f"{__name__}:catch_all",
            )
        )

    assert (f"caught {name}", 2) in ran


async def test_an_empty_text_means_no_dependencies_and_no_fallback(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as docket:
        await docket.add(note)(name, 8)
        await ends(
            Worker.run(
                docket_name=name,
                url=url,
                tasks=[f"{__name__}:tasks"],
                until_finished=True,
                fallback_task="",
                dependencies="",
            )
        )

    assert (name, 8) in ran


async def test_a_worker_program_takes_the_options_of_a_worker(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as docket:
        await docket.add(note)(name, 3)
        await ends(
            Worker.run(
                docket_name=name,
                url=url,
                name="mine",
                concurrency=2,
                redelivery_timeout=timedelta(seconds=30),
                reconnection_delay=timedelta(seconds=1),
                minimum_check_interval=timedelta(milliseconds=5),
                scheduling_resolution=timedelta(milliseconds=5),
                schedule_automatic_tasks=False,
                until_finished=True,
                tasks=[f"{__name__}:tasks"],
            )
        )

    assert (name, 3) in ran


async def slow(perpetual: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None:
    print("started", flush=True)
    await asyncio.sleep(0.3)
    print("finished", flush=True)


slow_tasks = [slow]

PROGRAM = f"""
import asyncio
from docket import Worker
asyncio.run(Worker.run(docket_name="program", url="memory://program", tasks=["{__name__}:slow_tasks"]))
"""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_the_running_task_finish_and_exits_with_zero(sign: signal.Signals) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(90):
            assert await process.stdout.readline() == b"started\n"
            process.send_signal(sign)
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()

    assert out == b"finished\n", err.decode()
    assert process.returncode == 0, err.decode()
    assert b"Traceback" not in err


async def test_a_worker_without_the_program_leaves_signal_handlers_alone(docket: Docket) -> None:
    seen: list[object] = []

    async def look() -> None:
        seen.extend([signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)])

    before = [signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)]
    await docket.add(look)()
    async with Worker(docket) as worker:
        await ends(worker.run_until_finished())

    assert seen == before
