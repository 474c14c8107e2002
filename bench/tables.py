"""The results as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.goals import GOALS, OURS, judge
from bench.measures import BACKLOGS, BLOCKING, COMPUTING, CONCURRENCIES, LARGEST, MEASURES, PROCESSES, USUAL
from bench.results import Results
from bench.systems import SYSTEMS

THROUGHPUT = (
    "enqueue_one",
    "enqueue_bulk",
    *(f"drain_{count}" for count in CONCURRENCIES),
    f"defaults_{USUAL}",
    "efficiency",
)
PLAIN = (
    "plain",
    *(f"blocking_{count}" for count in BLOCKING),
    *(f"computing_{ms}" for ms in COMPUTING),
    *(f"computing_{ms}_cpu" for ms in COMPUTING),
)
RESPONSE = ("latency_p50", "latency_p99", "result_p50", "result_p99", "late_p50", "late_p99")
COST = (
    *("bytes", f"commands_{USUAL}", f"reads_{USUAL}", f"net_{USUAL}", f"worker_cpu_{USUAL}", f"server_cpu_{USUAL}"),
    *("idle_commands", "idle_cpu", "import_cpu"),
)
SCALE = tuple(f"processes_{count}" for count in PROCESSES)
WAITING = tuple(f"waiting_{what}_{size}" for what in ("drain", "enqueue") for size in BACKLOGS)
LARGE = ("largest_enqueue", "largest_drain", "largest_bytes", "largest_snapshot", "largest_top")
LATER = tuple(f"later_{what}_{size}" for what in ("drain", "enqueue") for size in BACKLOGS)

TITLES = {
    "Throughput (more is better)": THROUGHPUT,
    "Plain functions: threads and processes (more is better)": PLAIN,
    "Response of an idle worker at concurrency 10 (less is better)": RESPONSE,
    f"Cost, drain at concurrency {USUAL} (less is better)": COST,
    f"More worker processes, concurrency {USUAL} each (more is better)": SCALE,
    "With tasks already waiting": WAITING,
    f"With {LARGEST:,} tasks waiting": LARGE,
    "With tasks scheduled for later": LATER,
}


class Footnotes:
    """Reasons for empty cells, each written once."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        if text not in self._texts:
            self._texts.append(text)
        return f"<sup>{self._texts.index(text) + 1}</sup>"

    def lines(self) -> list[str]:
        return [f"{number}. {plain(text)}" for number, text in enumerate(self._texts, 1)]


def render(results: Results) -> str:
    """Every table of a run, with what it was run on and with which settings."""
    notes = Footnotes()
    parts = [about(results), goals_table(results)]
    for title, keys in TITLES.items():
        measured = [key for key in keys if _has_any(results, key)]
        if measured:
            parts.append(f"### {title}\n\n{measures_table(results, measured, notes)}")
    if notes.lines():
        parts.append("### Why a cell is empty\n\n" + "\n".join(notes.lines()))
    if repeats := _repeats(results):
        parts.append("### Tasks that ran more than once\n\n" + "\n".join(repeats))
    parts.append("### Settings\n\n" + settings(results))
    return "\n\n".join(parts)


def about(results: Results) -> str:
    facts = "; ".join(f"{name}: {plain(value)}" for name, value in results.about.items())
    return f"Run of {facts.removeprefix('date: ')}."


def goals_table(results: Results) -> str:
    head = ("", "goal", OURS, "reached", "best peer", "times as good", "bare consumer", "times as good")
    rows: list[Sequence[str]] = []
    for goal in GOALS:
        if not _has_any(results, goal.measure):
            continue
        verdict = judge(results, goal)
        measure = MEASURES[goal.measure]
        peer = f"{verdict.best_peer} {number(verdict.best, measure.digits)}" if verdict.best_peer else "–"
        rows.append(
            (
                f"{measure.title}{', ' + measure.unit if measure.unit else ''}",
                goal.text,
                number(verdict.ours, measure.digits),
                {True: "yes", False: "**no**", None: "–"}[verdict.reached],
                peer,
                number(verdict.ratio, 1),
                number(verdict.limit, measure.digits),
                number(verdict.limit_ratio, 2),
            )
        )
    return "### Goals\n\n" + (table(head, rows) if rows else "None was measured.")


def measures_table(results: Results, keys: Sequence[str], notes: Footnotes) -> str:
    head = ("", *(f"{MEASURES[key].title}{', ' + MEASURES[key].unit if MEASURES[key].unit else ''}" for key in keys))
    names = [system.name for system in SYSTEMS if any(_known(results, key, system.name) for key in keys)]
    rows = [
        (f"**{name}**" if name == OURS else name, *(cell(results, key, name, notes) for key in keys)) for name in names
    ]
    return table(head, rows)


def cell(results: Results, key: str, system: str, notes: Footnotes) -> str:
    """The median, and the best in brackets where there were several rounds."""
    digits = MEASURES[key].digits
    failure = results.failures.get(key, {}).get(system)
    middle, best = results.median(key, system), results.best(key, system)
    if middle is None:
        if failure is not None:
            return "failed" + notes.mark(failure)
        gap = results.gaps.get(key, {}).get(system)
        return "–" + (notes.mark(gap) if gap else "")
    text = number(middle, digits)
    if len(results.samples[key][system]) > 1:
        text += f" ({number(best, digits)})"
    return text + (notes.mark(f"in some rounds: {failure}") if failure else "")


def settings(results: Results) -> str:
    lines: list[str] = []
    for name, text in results.settings.items():
        versions = ", ".join(f"{package} {version}" for package, version in results.versions.get(name, {}).items())
        lines.append(f"- **{name}** ({versions or 'not installed'}): {text}")
    return "\n".join(lines)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def plain(text: str) -> str:
    """Text of unknown origin, harmless in Markdown."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _known(results: Results, key: str, system: str) -> bool:
    return any(system in found.get(key, {}) for found in (results.samples, results.failures, results.gaps))


def _has_any(results: Results, key: str) -> bool:
    return bool(results.samples.get(key) or results.failures.get(key))


def _repeats(results: Results) -> list[str]:
    return [
        f"- {system}, concurrency {count:,}: {int(max(values)):,} in one round"
        for count in CONCURRENCIES
        for system, values in results.samples.get(f"repeats_{count}", {}).items()
        if max(values) > 0
    ]
