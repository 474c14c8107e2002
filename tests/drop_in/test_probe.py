"""The probe reports every difference from pydocket that the table does not explain."""

from compat.environments import ROOT
from compat.probe.comparing import Deliberate, compare, read_deliberate

TABLE = "| what | theirs | ours |\n|---|---|---|\n| A row | this | that |\n"


def test_a_difference_that_is_not_in_the_table_is_reported() -> None:
    comparison = compare({"a.b.c": 1, "a.b.d": 2}, {"a.b.c": 1, "a.b.d": 3}, [], TABLE)

    assert [difference.observation for difference in comparison.unexplained] == ["a.b.d"]


def test_a_difference_in_the_table_is_deliberate() -> None:
    comparison = compare({"a.b.c": 1}, {"a.b.c": 2}, [Deliberate("A row", ("a.b.*",))], TABLE)

    assert comparison.unexplained == comparison.undocumented == []
    assert [difference.row for difference in comparison.differences] == ["A row"]


def test_a_row_that_the_page_does_not_have_is_reported() -> None:
    comparison = compare({"a": 1}, {"a": 2}, [Deliberate("Another row", ("a",))], TABLE)

    assert comparison.undocumented == ["Another row"]


def test_additions_of_docket_are_not_differences_but_missing_names_are() -> None:
    comparison = compare({"theirs": True}, {"ours": True}, [], TABLE)

    assert [difference.observation for difference in comparison.unexplained] == ["theirs"]


def test_a_missing_function_is_one_difference() -> None:
    theirs = {"f.callable": True, "f.(x)": "positional_or_keyword", "f.required": ["x"]}

    assert len(compare(theirs, {}, [], TABLE).unexplained) == 1


def test_a_call_that_worked_still_works_if_less_is_required() -> None:
    theirs = {"f.callable": True, "f.(x)": "keyword_only", "f.required": ["x", "y"]}
    ours = {"f.callable": True, "f.(x)": "positional_or_keyword", "f.required": ["x"]}

    assert not compare(theirs, ours, [], TABLE).differences
    assert compare(ours, theirs | {"f.required": ["x", "z"]}, [], TABLE).differences


def test_every_row_that_the_probe_refers_to_is_on_the_page() -> None:
    page = ROOT.joinpath("docs", "pydocket.md").read_text("utf-8")
    deliberate = read_deliberate(ROOT / "compat" / "probe" / "differences.toml")

    assert deliberate
    assert compare({}, {}, deliberate, page).undocumented == []
