"""Pages quote figures of the published benchmark. They are those of the last published run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each row of the goals that other pages quote, and those pages.
QUOTED = {
    "drain, concurrency 100, /s": (
        *("README.md", "docs/comparison.md", "docs/production/sizing.md", "docs/design/performance.md"),
        *("docs/coming-from/celery.md", "docs/coming-from/arq.md", "docs/coming-from/taskiq.md"),
    ),
    "drain, concurrency 10, /s": (
        *("docs/coming-from/rq.md", "docs/production/sizing.md", "docs/design/performance.md"),
    ),
    "enqueue → body, idle worker, p50, ms": (
        *("README.md", "docs/design/performance.md", "docs/coming-from/celery.md", "docs/coming-from/arq.md"),
        *("docs/coming-from/taskiq.md", "docs/coming-from/rq.md"),
    ),
    "enqueue → result, p50, ms": ("docs/design/performance.md", "docs/coming-from/taskiq.md"),
    "bytes in Redis per queued task, B": ("README.md", "docs/production/sizing.md"),
    "worker CPU per 1,000 tasks, s": ("docs/production/sizing.md",),
}
# Figures that a page states with their unit, outside the rows that `bench --publish` writes.
STATED = {
    "README.md": {
        r"\*\*([\d,.]+) tasks a second": "drain, concurrency 100, /s",
        r"\*\*([\d,.]+) ms": "enqueue → body, idle worker, p50, ms",
        r"\*\*([\d,.]+) bytes": "bytes in Redis per queued task, B",
    },
    "docs/design/performance.md": {
        r"first line of the body takes ([\d,.]+) ms": "enqueue → body, idle worker, p50, ms",
        r"to the result in the\s+caller ([\d,.]+) ms": "enqueue → result, p50, ms",
        r"A worker drains ([\d,.]+) tasks a second": "drain, concurrency 100, /s",
        r"at concurrency 100 and ([\d,.]+) at 10": "drain, concurrency 10, /s",
    },
}
# The bold figures of the README that other pages prove.
PROVED_ELSEWHERE = {"about 10 s", "0 violations"}


def goals() -> dict[str, str]:
    """The figures of docket in the table of the goals."""
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    table = page[page.index("### Goals") :].split("\n\n", 2)[1]
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()[2:]]
    return {row[0]: row[2] for row in rows}


@pytest.mark.parametrize(("figure", "page"), [(figure, page) for figure, pages in QUOTED.items() for page in pages])
def test_a_page_quotes_the_published_figure(figure: str, page: str) -> None:
    value = goals()[figure]
    text = (ROOT / page).read_text("utf-8")
    assert re.search(rf"(?<![\d,.]){re.escape(value)}(?![\d])", text), (
        f"{page} does not have the published figure {value} ({figure}): write it there"
    )


@pytest.mark.parametrize(("page", "pattern"), [(page, pattern) for page, known in STATED.items() for pattern in known])
def test_a_page_states_no_other_figure(page: str, pattern: str) -> None:
    found = re.findall(pattern, (ROOT / page).read_text("utf-8"))
    assert found, f"{page} no longer says {pattern}"
    assert set(found) == {goals()[STATED[page][pattern]]}, f"{page}: {pattern}"


def test_every_bold_figure_of_the_readme_is_known() -> None:
    bold = set(re.findall(r"^\| \*\*([^*]*\d[^*]*)\*\* \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE))
    assert bold > PROVED_ELSEWHERE
    for figure in bold - PROVED_ELSEWHERE:
        assert any(re.match(pattern, f"**{figure}**") for pattern in STATED["README.md"]), figure
