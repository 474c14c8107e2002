"""`python -m bench.path`: the files of docket that one task passes through, from `add` to the
result.

A docket and a worker share this process. Other tasks run first, so what happens once (imports,
connections, the first look at a function) is not on the path.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import docket
from docket import Docket, Worker

ROOT = Path(docket.__file__).parent


class Recorder:
    """Collects the functions of docket that are called while it is on."""

    def __init__(self) -> None:
        self.codes: dict[CodeType, None] = {}
        self.is_on: bool = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_on and event == "call":
            self.codes.setdefault(frame.f_code)

    def functions(self) -> dict[str, list[str]]:
        """The names of the functions by file, in the order of their first calls."""
        found: dict[str, list[str]] = {}
        for code in self.codes:
            path = Path(code.co_filename)
            if path.is_relative_to(ROOT) and code.co_name != "<module>":
                found.setdefault(str(path.relative_to(ROOT)), []).append(code.co_qualname)
        return found


async def double(number: int) -> int:
    return 2 * number


async def record(recorder: Recorder) -> None:
    async with Docket("path", "memory://path") as producer, Worker(producer) as worker:
        producer.register(double)
        running = asyncio.create_task(worker.run_forever())
        for number in range(20):
            execution = await producer.add(double)(number)
            assert await execution.get_result() == 2 * number
        recorder.is_on = True
        execution = await producer.add(double)(21)
        assert await execution.get_result() == 42
        recorder.is_on = False
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def main() -> None:
    recorder = Recorder()
    # Python's standard library calls it in each thread that starts from now on.
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    asyncio.run(record(recorder))
    sys.setprofile(None)
    found = recorder.functions()
    for file, names in found.items():
        print(f"{file:45} {', '.join(names)}")
    print(f"{len(found)} files, {sum(map(len, found.values()))} functions")


if __name__ == "__main__":
    main()
