"""The command line: exit codes, output, logs (rows A3, G)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import tempfile
from pathlib import Path
from typing import Any

from compat.probe.place import Place, begin, command, eventually, later, plain, run_all

MODULE = """
import asyncio
from docket import Retry


async def greet(name: str = "you") -> str:
    return f"hello {name}"


async def nap() -> None:
    await asyncio.sleep(2)


async def broken() -> None:
    raise LookupError("not here")

tasks = [greet, nap, broken]
"""


@contextlib.contextmanager
def _module() -> Any:
    """A module of tasks, as the environment of a command finds it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "probe_tasks.py").write_text(MODULE, "utf-8")
        yield {"PYTHONPATH": os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])}


async def help_and_version(place: Place) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    names = ("worker", "strike", "restore", "clear", "snapshot", "watch", "workers", "tasks")
    top, *answers = await _two_at_a_time([command("--help"), *(command(name, "--help") for name in names)])
    seen["commands"] = {name: name in top.out for name in _COMMANDS}
    for name, ran in zip(names, answers, strict=True):
        seen[f"{name}.code"] = ran.code
        options = sorted(set(re.findall(r"--[a-z][a-z-]+", ran.out)))
        seen |= {f"{name}.{option}": True for option in options}
        seen |= {f"{name}.env.{variable}": True for variable in sorted(set(re.findall(r"DOCKET_[A-Z_]+", ran.out)))}
    version = await command("version")
    return seen | {"version.code": version.code, "version.lines": len(version.out.strip().splitlines())}


_COMMANDS = ("worker", "strike", "restore", "clear", "snapshot", "watch", "workers", "tasks", "version")


async def mistakes(place: Place) -> dict[str, Any]:
    """Exit codes of wrong calls; never a traceback."""
    with _module() as environment:
        cases: dict[str, tuple[str, ...]] = {
            "no_command": (),
            "unknown_command": ("nonsense",),
            "unknown_option": ("worker", "--nonsense"),
            "bad_duration": ("worker", "--redelivery-timeout", "soon"),
            "bad_concurrency": ("worker", "--concurrency", "many"),
            "bad_level": ("worker", "--logging-level", "LOUD"),
            "bad_format": ("worker", "--logging-format", "xml"),
            "missing_module": ("worker", "--tasks", "nowhere:tasks", "--until-finished"),
            "missing_collection": ("worker", "--tasks", "probe_tasks:nothing", "--until-finished"),
            "bad_operator": ("strike", "greet", "name", "~", "x"),
            "half_a_strike": ("strike", "greet", "name"),
            "unknown_key": ("watch", "no-such-key", "--docket", place.name, "--url", place.url),
            "empty_dependencies": ("worker", "--until-finished", "--dependencies", ""),
            "empty_fallback": ("worker", "--until-finished", "--fallback-task", ""),
        }
        seen: dict[str, Any] = {}
        answers = await _two_at_a_time(
            [
                command(*args, url=place.url, seconds=30, DOCKET_NAME=place.name, **environment)
                for args in cases.values()
            ]
        )
        for name, ran in zip(cases, answers, strict=True):
            seen[f"{name}.code"] = ran.code
            seen[f"{name}.traceback"] = "Traceback" in ran.text
    return seen


async def _two_at_a_time(runs: list[Any]) -> list[Any]:
    """Commands mostly load modules, and most machines have two cores."""
    gate = asyncio.Semaphore(2)

    async def one(run: Any) -> Any:
        async with gate:
            return await run

    return await asyncio.gather(*(one(run) for run in runs))


async def memory(place: Place) -> dict[str, Any]:
    """G4."""
    seen: dict[str, Any] = {}
    cases = (("snapshot",), ("clear",), ("workers", "ls"), ("tasks", "trace", "hi"), ("strike", "greet"))
    answers = await _two_at_a_time([command(*args, "--url", "memory://", seconds=30) for args in cases])
    for args, ran in zip(cases, answers, strict=True):
        seen[f"{args[0]}.code"] = ran.code
        seen[f"{args[0]}.says_not_supported"] = "not supported" in " ".join(ran.text.split())
        seen[f"{args[0]}.names_redis"] = "redis://" in ran.text
    return seen


async def worker_in_three_formats(place: Place) -> dict[str, Any]:
    """G1, G2, G3: what a worker writes, and where."""
    seen: dict[str, Any] = {}
    with _module() as environment:
        for style in ("plain", "json", "rich"):
            async with place.docket(name=f"{place.name}-{style}") as docket:
                from docket import tasks

                await docket.add(tasks.trace, key="a-key")("hello")
            ran = await command(
                "worker", "--until-finished", "--logging-format", style, "--name", "a-worker", "--tasks",
                "docket.tasks:standard_tasks", "--docket", f"{place.name}-{style}", url=place.url, **environment,
            )  # fmt: skip
            seen[f"{style}.code"] = ran.code
            seen[f"{style}.out_has_the_start"] = "Starting worker 'a-worker' with the following tasks:" in ran.out
            seen[f"{style}.out_lists_tasks"] = "* trace(message: str" in " ".join(ran.out.split())
            seen[f"{style}.out_has_the_run"] = "trace(" in ran.out and "a-key" in ran.out
            seen[f"{style}.err_is_empty"] = not ran.err.strip()
            if style == "json":
                seen |= _json_lines(ran.out)
    return seen


def _json_lines(out: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    every = [set(line) for line in lines]
    common = set.intersection(*every) if every else set[str]()
    starts = [line for line in lines if str(line.get("message", "")).strip().startswith("↪")]
    return {
        "json.every_line_is_json": bool(lines) and len(lines) == len([line for line in out.splitlines() if line]),
        "json.fields": {name: name in common for name in ("name", "levelname", "asctime", "message", "exc_info")},
        "json.asctime": plain(str(lines[0].get("asctime"))) if lines else None,
        "json.fields_of_a_run": {
            name: name in (starts[0] if starts else {})
            for name in ("docket.name", "docket.worker", "docket.task", "docket.key", "punctuality")
        },
    }


async def signals(place: Place) -> dict[str, Any]:
    """A3: SIGTERM and SIGINT while a task runs."""
    seen: dict[str, Any] = {}
    with _module() as environment:
        for number in (signal.SIGTERM, signal.SIGINT):
            name = f"{place.name}-{number.name}"
            process = await begin(
                "worker", "--logging-format", "plain", "--tasks", "probe_tasks:tasks", "--docket", name,
                url=place.url, **environment,
            )  # fmt: skip
            async with place.docket(name=name) as docket:
                docket.register(_nap, names=["nap"])
                execution = await docket.add("nap")()

                async def runs(docket: Any = docket, key: str = execution.key) -> bool:
                    found = await docket.get_execution(key)
                    return found is not None and found.state.value == "running"

                await eventually(runs)
                process.send_signal(number)
                try:
                    out, err = await asyncio.wait_for(process.communicate(), 20)
                except TimeoutError:
                    process.kill()
                    out, err = await process.communicate()
                await execution.sync()
            text = (out + err).decode()
            seen[f"{number.name}.code"] = process.returncode
            seen[f"{number.name}.state"] = execution.state.value
            seen[f"{number.name}.says_received"] = f"Received {number.name}, initiating graceful shutdown" in text
            seen[f"{number.name}.says_finishing"] = "Shutdown requested, finishing 1" in text
    return seen


async def _nap() -> None: ...


async def operators(place: Place) -> dict[str, Any]:
    """Strikes, snapshots, workers, clear and the built-in tasks."""
    seen: dict[str, Any] = {}

    async def run(name: str, *args: str) -> str:
        ran = await command(*args, "--docket", place.name, url=place.url)
        seen[f"{name}.code"] = ran.code
        seen[f"{name}.traceback"] = "Traceback" in ran.text
        return ran.text

    seen["snapshot.empty"] = "0 tasks" in await run("snapshot_of_nothing", "snapshot")
    await run("tasks_trace", "tasks", "trace", "hello")
    await run("tasks_sleep", "tasks", "sleep", "0.1")
    await run("tasks_fail", "tasks", "fail", "on purpose")
    text = await run("snapshot", "snapshot")
    seen["snapshot.names"] = {name: name in text for name in ("trace", "sleep", "fail")}
    await run("snapshot_with_stats", "snapshot", "--stats")
    await run("strike", "strike", "trace")
    await run("strike_by_value", "strike", "trace", "message", "==", "hello")
    await run("restore", "restore", "trace")
    await run("restore_by_value", "restore", "trace", "message", "==", "hello")
    seen["workers_ls.says"] = "No workers" in await run("workers_ls", "workers", "ls")
    await run("workers_for_task", "workers", "for-task", "trace")
    seen["clear.says_how_many"] = "3" in await run("clear", "clear")
    return seen


async def watching(place: Place) -> dict[str, Any]:
    """G5: `docket watch` without a terminal, and its exit codes."""
    seen: dict[str, Any] = {}

    async def greet() -> None: ...

    async def broken() -> None:
        raise LookupError("not here")

    for function in (greet, broken):
        name = function.__name__
        async with place.docket() as docket:
            docket.register(function)
            await docket.add(function, key=f"a-{name}")()
            process = await begin("watch", f"a-{name}", "--docket", place.name, "--url", place.url)
            assert process.stdout is not None
            first = await asyncio.wait_for(process.stdout.readline(), 30)
            await run_all(docket)
            out, err = await asyncio.wait_for(process.communicate(), 30)
        text = (first + out + err).decode()
        seen[f"{name}.code"] = process.returncode
        seen[f"{name}.has"] = {
            "key": f"a-{name}" in text,
            "function": name in text.replace(f"a-{name}", ""),
            "docket": place.name in text,
            "mark": ("✓" if name == "greet" else "✗") in text,
        }
    async with place.docket() as docket:
        docket.register(greet)
        await docket.add(greet, key="cancelled", when=later())()
        await docket.cancel("cancelled")
    ran = await command("watch", "cancelled", "--docket", place.name, "--url", place.url, seconds=30)
    seen["cancelled.code"] = ran.code
    return seen
