"""Pages are wrapped at 100 columns without a change to what they show."""

import pytest

from lint.prose import WIDTH, html, too_wide, wrap

SENTENCE = "A worker claims a task, runs it and settles it before it claims the next one. "


@pytest.mark.parametrize(
    "page",
    [
        SENTENCE * 3,
        f"* first\n* {SENTENCE * 3}\n\n  {SENTENCE * 3}\n* last",
        f"1. {SENTENCE * 3}\n   * {SENTENCE * 3}",
        f"> {SENTENCE * 3}",
        f"{SENTENCE * 2}\n{SENTENCE}\n\n| {SENTENCE * 3} | b |\n|---|---|\n| {SENTENCE * 3} | d |",
    ],
    ids=["paragraph", "list", "nested list", "quote", "beside a table"],
)
def test_long_prose_is_wrapped_and_shows_the_same(page: str) -> None:
    wrapped = wrap(page)
    assert wrapped != page
    assert html(wrapped) == html(page)
    assert all(len(line) <= WIDTH for line in wrapped.split("\n") if not line.startswith("|"))
    assert not list(too_wide(wrapped))
    assert wrap(wrapped) == wrapped


@pytest.mark.parametrize(
    "page",
    [f"```\n{SENTENCE * 3}\n```", f"# {SENTENCE * 3}", f"| {SENTENCE * 3} |\n|---|", f"<!-- {SENTENCE * 3} -->"],
    ids=["code", "heading", "table", "comment"],
)
def test_code_headings_tables_and_html_may_be_long(page: str) -> None:
    assert not list(too_wide(page))
    assert wrap(page) == page


def test_short_paragraphs_keep_their_lines() -> None:
    assert wrap("One line.\nAnother line.\n\n" + SENTENCE * 3).startswith("One line.\nAnother line.\n\n")


@pytest.mark.parametrize("word", ["-", "+", "*", "#", "1.", "2)", ">", "---", "==="])
def test_no_line_begins_with_a_word_that_would_start_a_list_or_a_heading(word: str) -> None:
    page = f"{'x' * (WIDTH - 1)} {word} {'y' * 20}"
    assert html(wrap(page)) == html(page)


def test_code_within_a_sentence_stays_on_one_line() -> None:
    code = "`docket.add(greet, when=tomorrow)('Ada')`"
    assert code in wrap(f"{SENTENCE}{code} {SENTENCE}")


def test_a_word_that_is_too_long_by_itself_is_left_alone() -> None:
    assert not list(too_wide("x" * (WIDTH + 50)))


def test_hard_line_breaks_are_kept() -> None:
    page = f"{SENTENCE * 2}  \n{SENTENCE}"
    assert wrap(page) == page
