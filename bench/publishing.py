"""Writes results to the cache folder and, on request, to the documentation."""

from __future__ import annotations

from pathlib import Path

from bench.chart import draw
from bench.results import Results
from bench.systems import ROOT
from bench.tables import render
from lint.prose import wrap

PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin results: written by `python -m bench --publish` -->", "<!-- end results -->"


def save(results: Results, folder: Path) -> list[Path]:
    """Markdown, JSON and SVG in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    page, stored, picture = (folder / f"benchmarks.{kind}" for kind in ("md", "json", "svg"))
    page.write_text(render(results) + "\n", "utf-8")
    results.save(stored)
    picture.write_text(draw(results), "utf-8")
    return [page, stored, picture]


def publish(results: Results, page: Path = PAGE) -> list[Path]:
    """Puts the tables between the marks of the page, and JSON and SVG beside it."""
    text = page.read_text("utf-8")
    before, found, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{page} lacks the lines {BEGIN} and {END} between which the results belong")
    page.write_text(f"{before}{BEGIN}\n\n{wrap(render(results))}\n\n{END}{after}", "utf-8")
    stored, picture = page.with_suffix(".json"), page.with_suffix(".svg")
    results.save(stored)
    picture.write_text(draw(results), "utf-8")
    return [page, stored, picture]
