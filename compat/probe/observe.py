"""Runs scenarios in the environment of this interpreter
and writes their observations as lines of JSON.

    python -m compat.probe.observe URL FILE GROUP...

A scenario is a public coroutine function of `compat.probe.scenarios.<group>` that takes a `Place`
and returns a mapping from the name of an observation to its value.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

from compat.probe.place import Place

SCENARIO_SECONDS = 240.0

Scenario = Callable[[Place], Coroutine[Any, Any, dict[str, Any]]]


def scenarios(group: str) -> list[tuple[str, Scenario]]:
    module = importlib.import_module(f"compat.probe.scenarios.{group}")
    return [
        (name, found)
        for name, found in vars(module).items()
        if inspect.iscoroutinefunction(found) and found.__module__ == module.__name__ and not name.startswith("_")
    ]


async def observed(scenario: Scenario, place: Place) -> dict[str, Any]:
    task = asyncio.ensure_future(scenario(place))
    _, pending = await asyncio.wait([task], timeout=SCENARIO_SECONDS)
    if pending:
        task.cancel()
        await asyncio.wait([task], timeout=10)
        return {"ended": f"not within {SCENARIO_SECONDS:.0f} s"}
    error = task.exception()
    if error is not None:
        # Only the scenario's own line: both sides are black boxes.
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if "scenarios" in frame.filename]
        print(f"  line {lines[-1:]}: {type(error).__name__}: {error}", file=sys.stderr)
        return {"ended": f"raises {type(error).__name__}: {error}"}
    return task.result()


def main(url: str, file: str, *groups: str) -> None:
    warnings.simplefilter("ignore")
    logging.getLogger().addHandler(logging.NullHandler())  # scenarios listen for themselves
    with Path(file).open("a", encoding="utf-8") as out:
        for group in groups:
            for name, scenario in scenarios(group):
                began = time.monotonic()
                seen = asyncio.run(observed(scenario, Place(url, f"probe-{uuid4().hex[:12]}")))
                print(f"  {group}.{name}  {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
                for observation, value in seen.items():
                    out.write(json.dumps([f"{group}.{name}.{observation}", value], default=repr) + "\n")
                out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
