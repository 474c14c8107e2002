"""Tables of the documentation that follow from the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docket import Docket
from docket.model.options import declared_options
from docs import tables

PAGES = [page for page in sorted(tables.FOLDER.rglob("*.md")) if "<!-- table: " in page.read_text()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_that_the_code_writes(page: Path) -> None:
    assert page.read_text() == tables.write(page.read_text()), "run python -m docs.tables"


def test_every_table_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in tables.TABLES if f"<!-- table: {name} " not in text] == []


def test_the_page_about_settings_that_must_agree_says_who_has_to_agree_on_each() -> None:
    page = (tables.FOLDER / "design" / "settings.md").read_text()
    told = {
        row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| (producers and workers|workers)\b", page, re.MULTILINE)
    }
    declared = declared_options(Docket).items()
    assert told == {name: option.option.must_agree for name, option in declared if option.option.must_agree}
