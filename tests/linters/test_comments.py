"""Comments and docstrings are wrapped at 100 columns without a change to the code."""

import ast

import pytest

from lint.comments import WIDTH, code, too_wide, wrap

SENTENCE = "A worker claims a task, runs it and settles it before it claims the next one."
LONG = f"{SENTENCE} {SENTENCE}"


@pytest.mark.parametrize(
    "text",
    [
        f"# {LONG}\nx = 1\n",
        f"def f():\n    # {LONG}\n    # {SENTENCE}\n    return 1\n",
        f'"""{LONG}"""\n',
        f'class A:\n    """{LONG}\n\n    {LONG}\n    """\n',
        f'class A:\n    def f(self):\n        """{SENTENCE}\n        {LONG}"""\n',
    ],
    ids=["comment", "indented comment", "module", "class", "method"],
)
def test_long_comments_and_docstrings_are_wrapped(text: str) -> None:
    wrapped = wrap(".py", text)
    assert all(len(line) <= WIDTH for line in wrapped.split("\n"))
    assert code(".py", wrapped) == code(".py", text)
    assert wrapped.split() == text.split() or wrapped.replace("#", "").split() == text.replace("#", "").split()
    assert not list(too_wide(".py", wrapped))


@pytest.mark.parametrize(
    "text",
    [
        f"x = 1  # {LONG}\n",
        f"x = '# {LONG}'\n",
        f'x = """{LONG}"""\n',
        f"#     {LONG}\n",
        f"# - {LONG}\n",
        f"# noqa: E501 {LONG}\n",
        f'"""A list:\n\n- {LONG}\n"""\n',
    ],
    ids=["beside code", "text", "long text", "laid out", "list", "directive", "list in a docstring"],
)
def test_code_lists_and_directives_are_left_alone(text: str) -> None:
    assert wrap(".py", text) == text


def test_short_paragraphs_of_a_docstring_keep_their_lines() -> None:
    text = f'"""One line.\n\nAnother\nparagraph.\n\n{LONG}\n"""\n'
    assert wrap(".py", text).startswith('"""One line.\n\nAnother\nparagraph.\n\n')


def test_no_line_is_left_with_a_single_word() -> None:
    text = f"# {'word ' * 20}end\n"
    assert min(len(line) for line in wrap(".py", text).strip().split("\n")) > WIDTH / 3


def test_the_header_of_a_script_keeps_its_labels_on_lines_of_their_own() -> None:
    text = (
        f"-- {LONG}\n-- ARGV[2]: {LONG}\n--   more: {SENTENCE}\n-- Returns: one.\n-- uses: {'keys, ' * 30}\nreturn 1\n"
    )
    wrapped = wrap(".lua", text)
    lines = wrapped.split("\n")
    assert all(len(line) <= WIDTH for line in lines if not line.startswith("-- uses"))
    assert [line.split()[1] for line in lines if line.startswith(("-- ARGV", "-- Returns", "-- uses"))] == [
        "ARGV[2]:",
        "Returns:",
        "uses:",
    ]
    assert wrapped.endswith("\nreturn 1\n")


def test_wrapped_files_are_still_python() -> None:
    text = f'def f(a):\n    """{LONG}"""\n    # {LONG}\n    return a\n'
    assert ast.dump(ast.parse(wrap(".py", text)).body[0].body[-1]) == ast.dump(ast.parse(text).body[0].body[-1])  # type: ignore[attr-defined]
