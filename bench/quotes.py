"""Rows of other pages that quote figures of the published run.
`python -m bench --publish` writes them again; sentences with figures
are written by hand, and a test finds those that are out of date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measures import MEASURES
from bench.results import Results
from bench.systems import ROOT
from bench.tables import number

ALL = ("docket", "pydocket", "celery", "arq", "rq", "taskiq", "saq", "streaq", "dramatiq", "huey")
SHORT = ("docket", "celery", "arq", "rq", "taskiq", "pydocket")
# RQ runs one task at a time in each process, so it has no figure at 100.
INSTEAD = {("drain_100", "rq"): "drain_10"}
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?|–")


@dataclass(frozen=True)
class Row:
    """The cells of a row that starts with `label`, one for each system."""

    page: str
    label: str
    measure: str
    systems: tuple[str, ...] = ("docket",)
    marks_best: bool = False


def _migration(page: str, system: str, *rows: tuple[str, str]) -> tuple[Row, ...]:
    return tuple(Row(f"docs/coming-from/{page}.md", label, measure, (system, "docket")) for label, measure in rows)


_DRAIN = ("drain, one worker, concurrency 100, tasks a second", "drain_100")
_BODY = ("enqueue → body, idle worker, p50", "latency_p50")
_LATE = ("lateness of a scheduled task, p50", "late_p50")
_BYTES = ("bytes on the server per queued task", "bytes")
_COMMANDS = ("commands on the server per task", "commands_100")

ROWS = (
    Row("README.md", "tasks a second, one worker", "drain_100", SHORT),
    Row("README.md", "`add` to body, p50", "latency_p50", SHORT),
    Row("docs/comparison.md", "drain, concurrency 100, tasks/s", "drain_100", ALL, marks_best=True),
    Row("docs/comparison.md", "enqueue one by one, /s", "enqueue_one", ALL, marks_best=True),
    Row("docs/comparison.md", "enqueue → body, p50, ms", "latency_p50", ALL, marks_best=True),
    Row("docs/comparison.md", "lateness of a scheduled task, p50, ms", "late_p50", ALL, marks_best=True),
    Row("docs/comparison.md", "bytes per queued task", "bytes", ALL, marks_best=True),
    Row("docs/comparison.md", "commands on the server per task", "commands_100", ALL, marks_best=True),
    Row("docs/comparison.md", "worker CPU per 1,000 tasks, s", "worker_cpu_100", ALL, marks_best=True),
    Row("docs/production/sizing.md", "queued", "bytes"),
    Row("docs/production/sizing.md", "worker, without the work of your functions", "worker_cpu_100"),
    Row("docs/production/sizing.md", "server, from `add` to the end", "server_cpu_100"),
    Row("docs/production/sizing.md", "drain, concurrency 10", "drain_10"),
    Row("docs/production/sizing.md", "drain, concurrency 100", "drain_100"),
    *_migration(
        *("celery", "celery", _DRAIN, ("enqueue one by one, a second", "enqueue_one"), _BODY, _BYTES),
        *(("worker CPU per 1,000 tasks", "worker_cpu_100"), _LATE),
    ),
    *_migration("arq", "arq", _DRAIN, _BODY, _LATE, _COMMANDS),
    *_migration("rq", "rq", ("drain, 10 at a time, tasks a second", "drain_10"), _BODY, _LATE, _BYTES),
    *_migration("taskiq", "taskiq", _DRAIN, _BODY, ("enqueue → result, p50", "result_p50"), _COMMANDS, _BYTES),
)


def quote(results: Results, root: Path = ROOT, rows: Sequence[Row] = ROWS) -> list[Path]:
    """Writes the rows. Raises ValueError if a page does not have one of them. A figure that this
    run lacks stays as it is."""
    changed: list[Path] = []
    for row in rows:
        path = root / row.page
        text = path.read_text("utf-8")
        found = re.search(rf"^\| {re.escape(row.label)} \|(.*)\|$", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"{row.page} has no row {row.label!r}")
        cells = found[1].split("|")
        if len(cells) != len(row.systems):
            raise ValueError(f"{row.page}, {row.label!r}: {len(cells)} cells for {len(row.systems)} systems")
        values = [results.median(INSTEAD.get((row.measure, system), row.measure), system) for system in row.systems]
        texts = [_shown(value, row.measure) for value in values]
        best = _best(row, texts)
        new = "|".join(
            cell if text is None else _replaced(cell, text, is_best=text == best if row.marks_best else None)
            for cell, text in zip(cells, texts, strict=True)
        )
        if new != found[1]:
            path.write_text(text[: found.start(1)] + new + text[found.end(1) :], "utf-8")
            if path not in changed:
                changed.append(path)
    return changed


def _shown(value: float | None, measure: str) -> str | None:
    """As in the tables, but without digits that say nothing."""
    if value is None:
        return None
    return number(value, 0 if value >= 100 else min(MEASURES[measure].digits, 1 if value >= 10 else 3))


def _best(row: Row, texts: Sequence[str | None]) -> str | None:
    """The best text: two figures that look the same are both the best. RQ's other drain does not
    count."""
    known = {
        float(text.replace(",", "")): text
        for system, text in zip(row.systems, texts, strict=True)
        if text is not None and (row.measure, system) not in INSTEAD
    }
    return known[MEASURES[row.measure].best(list(known))] if known else None


def _replaced(cell: str, text: str, *, is_best: bool | None) -> str:
    """The cell with another figure. What stands beside the figure stays."""
    plain = cell if is_best is None else cell.replace("*", "")
    return _NUMBER.sub(f"**{text}**" if is_best else text, plain, count=1)
