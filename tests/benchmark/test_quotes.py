"""The rows in which other pages quote the published benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.publishing import PAGE
from bench.quotes import ROWS, Row, quote
from bench.results import Results
from bench.systems import ROOT


def test_the_pages_quote_the_published_run(tmp_path: Path) -> None:
    for page in {row.page for row in ROWS}:
        copy = tmp_path / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / page).read_text("utf-8"), "utf-8")
    changed = quote(Results.load(PAGE.with_suffix(".json")), tmp_path)
    assert not changed, "`python -m bench --render docs/benchmarks.json --publish` writes these pages again"


def results(**medians: dict[str, float]) -> Results:
    found = Results({}, {}, {})
    for measure, by_system in medians.items():
        for system, value in by_system.items():
            found.add(measure, system, value)
    return found


@pytest.mark.parametrize(
    ("cells", "row", "figures", "expected"),
    [
        ("| 1,234 | 5 |", Row("page.md", "rate", "drain_100", ("a", "b")), {"a": 98_765.4, "b": 9.0}, "| 98,765 | 9 |"),
        ("| 1.17 ms |", Row("page.md", "rate", "latency_p50", ("a",)), {"a": 489.13}, "| 489 ms |"),
        ("| 683, 10 slots |", Row("page.md", "rate", "drain_100", ("a",)), {"a": 1000.0}, "| 1,000, 10 slots |"),
        ("| 7 | – |", Row("page.md", "rate", "drain_100", ("a", "b")), {"a": 8.0}, "| 8 | – |"),
        (
            "| **9** | 5 | 7 |",
            Row("page.md", "rate", "drain_100", ("a", "b", "c"), marks_best=True),
            {"a": 6.0, "b": 8.1, "c": 7.9},
            "| 6 | **8** | **8** |",
        ),
        (
            "| **1.5** | 2.5 |",
            Row("page.md", "rate", "latency_p50", ("a", "b"), marks_best=True),
            {"a": 2.0, "b": 1.0},
            "| 2.00 | **1.00** |",
        ),
    ],
)
def test_a_row_gets_the_figures_of_a_run(
    tmp_path: Path, cells: str, row: Row, figures: dict[str, float], expected: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n| rate {cells}\n| rate of others | 1 |\n", "utf-8")
    assert quote(results(**{row.measure: figures}), tmp_path, [row]) == [page]
    assert page.read_text("utf-8") == f"before\n| rate {expected}\n| rate of others | 1 |\n"
    assert quote(results(**{row.measure: figures}), tmp_path, [row]) == []


def test_a_page_without_the_row_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("| rate | 1 | 2 |\n", "utf-8")
    with pytest.raises(ValueError, match=r"page\.md has no row 'speed'"):
        quote(results(), tmp_path, [Row("page.md", "speed", "drain_100")])
    with pytest.raises(ValueError, match="2 cells for 1 systems"):
        quote(results(), tmp_path, [Row("page.md", "rate", "drain_100")])
