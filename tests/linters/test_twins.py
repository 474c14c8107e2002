"""A pair of twins cannot lose one of its ends silently."""

from pathlib import Path

import pytest

from lint import source, twins

FAST = "local function fast(c)\nend\n"
GENERAL = "for i = 1, 9 do\nend\n"
ROW = "| `fast` | `general path` |"


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "docket").mkdir()
    (tmp_path / "docs" / "design").mkdir(parents=True)
    monkeypatch.setattr(source, "ROOT", tmp_path)
    monkeypatch.setattr(source, "PACKAGE", tmp_path / "docket")
    monkeypatch.setattr(source, "CHAOS", tmp_path / "chaos")

    def check(fast: str, general: str, row: str = ROW) -> list[str]:
        (tmp_path / "docket" / "a.lua").write_text(f"{fast}\n{FAST}")
        (tmp_path / "docket" / "b.lua").write_text(f"{general}\n{GENERAL}")
        (tmp_path / "docs" / "design" / "performance.md").write_text(f"# P\n\n## Twins\n\n{row}\n\n## More\n")
        return list(twins.check())

    return check


def test_twins_name_each_other(check):
    assert check("-- twin of: general path (b.lua)", "-- general path, twin of: fast (a.lua)") == []


def test_an_end_that_is_gone_or_renamed_is_found(check):
    lost = ["docket/a.lua:1: general path (b.lua) does not say `twin of: fast (a.lua)`"]
    assert check("-- twin of: general path (b.lua)", "") == lost
    assert check("-- twin of: general path (b.lua)", "-- other path, twin of: fast (a.lua)")[:1] == lost


def test_a_comment_needs_its_form_and_a_name(check):
    assert check("-- This is the twin of: general path", "") == ["docket/a.lua:1: write `twin of: NAME (FILE)`"]
    assert check("", "-- twin of: fast (a.lua)") == ["docket/b.lua:1: no definition follows; write `NAME, twin of: …`"]


def test_the_table_has_a_row_for_each_pair(check):
    found = check("-- twin of: general path (b.lua)", "-- general path, twin of: fast (a.lua)", row="| none |")
    assert len(found) == 2
    assert "has no row with `fast` and `general path`" in found[0]
