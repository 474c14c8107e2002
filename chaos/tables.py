"""The figures of several runs as Markdown, for docs/reliability.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def tables(folder: Path) -> str:
    """Reads every `seed-*.json` of the folder."""
    runs: list[dict[str, Any]] = [json.loads(file.read_text()) for file in folder.glob("seed-*.json")]
    runs.sort(key=lambda run: run["seed"])
    return "\n\n".join([_totals(runs), _faults(runs), _recovery(runs)])


def _totals(runs: list[dict[str, Any]]) -> str:
    head = ["seed", "seconds", "tasks accepted", "runs", "again after a fault", "faults", "violations"]
    rows = [
        [
            run["seed"],
            f"{run['seconds']:.0f}",
            f"{run['accepted']:,}",
            f"{run['runs']:,}",
            run["restarts"],
            sum(run["faults"].values()),
            sum(run["violations"].values()),
        ]
        for run in runs
    ]
    return _table(head, rows)


def _faults(runs: list[dict[str, Any]]) -> str:
    kinds: Counter[str] = Counter()
    for run in runs:
        kinds.update(run["faults"])
    return _table(["fault", "times"], [[kind, count] for kind, count in sorted(kinds.items(), key=lambda i: -i[1])])


def _recovery(runs: list[dict[str, Any]]) -> str:
    found: dict[str, list[float]] = {}
    for run in runs:
        for recovery in run["recovery"]:
            found.setdefault(recovery["what"], []).extend(recovery["seconds"])
    rows: list[list[Any]] = []
    for what, seconds in found.items():
        ordered = sorted(seconds)
        p95 = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
        rows.append([what, len(ordered), f"{ordered[len(ordered) // 2]:.2f} s", f"{p95:.2f} s", f"{ordered[-1]:.2f} s"])
    return _table(["until work goes on", "times", "median", "p95", "longest"], rows)


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
