"""Comments and docstrings wrap at 100 columns, in Python and in Lua. `python -m lint` checks it,
`python -m lint.comments` wraps them.

A paragraph is wrapped only if one of its lines is too
long. Lists, tables and examples stay as they are.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lint.prose import WIDTH, words
from lint.source import ROOT

# Avoid a last line with fewer characters.
SHORT = 25
FOLDERS = ("src", "tests", "bench", "chaos", "compat", "docs", "examples", "lint")
DIRECTIVE = re.compile(r"#(?:!| ?(?:noqa|fmt|type|pyright|ruff|isort)\b)")
LUA_COMMENT = re.compile(r"(\s*)--(?!\[\[|-)( ?)(.*)$")
# The beginning of a new paragraph in the header of a script.
LUA_LABEL = re.compile(r"(?:KEYS|ARGV|Returns|uses)\b[^ ]*:?")
# Text that must keep its line breaks.
LAID_OUT = re.compile(r"\s|[-*•|>] |\d+[.)] |>>>|\.\. |[a-z_]+:: ")


@dataclass(frozen=True)
class Paragraph:
    """The lines of a file from `first` on, and their wrapped form."""

    first: int
    lines: list[str]
    wrapped: list[str]


def check() -> Iterator[str]:
    for file in files():
        for paragraph in too_wide(file.suffix, file.read_text("utf-8")):
            name = file.relative_to(ROOT).as_posix()
            yield f"{name}:{paragraph.first + 1}: comments wrap at {WIDTH}; `python -m lint.comments` wraps them"


def write() -> None:
    for file in files():
        text = file.read_text("utf-8")
        if (wrapped := wrap(file.suffix, text)) != text:
            file.write_text(wrapped, "utf-8")


def files() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.py"))
    for folder in FOLDERS:
        for suffix in (".py", ".lua"):
            yield from sorted((ROOT / folder).rglob(f"*{suffix}"))


def wrap(suffix: str, text: str) -> str:
    """The file with its comments wrapped. Raises ValueError if its code would change."""
    lines = text.split("\n")
    for paragraph in sorted(too_wide(suffix, text), key=lambda p: p.first, reverse=True):
        lines[paragraph.first : paragraph.first + len(paragraph.lines)] = paragraph.wrapped
    wrapped = "\n".join(lines)
    if code(suffix, wrapped) != code(suffix, text):
        raise ValueError("wrapping would change the code")
    return wrapped


def too_wide(suffix: str, text: str) -> Iterator[Paragraph]:
    found = [*_docstrings(text), *_python_comments(text)] if suffix == ".py" else _lua_comments(text)
    for paragraph in found:
        if any(len(line) > WIDTH for line in paragraph.lines) and paragraph.wrapped != paragraph.lines:
            yield paragraph


def code(suffix: str, text: str) -> str:
    """The file without its comments, and with each docstring on one line."""
    if suffix == ".lua":
        return "\n".join(line for line in text.split("\n") if not LUA_COMMENT.match(line))
    tree = ast.parse(text)
    for node in _documented(tree):
        constant = _docstring(node)
        if constant is not None:
            constant.value = " ".join(str(constant.value).split())
    return ast.dump(tree)


def _python_comments(text: str) -> Iterator[Paragraph]:
    block: list[str] = []
    first = column = 0
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT or lines[token.start[0] - 1].lstrip() != token.string:
            continue
        line = token.start[0] - 1
        if block and (line != first + len(block) or token.start[1] != column):
            yield from _comment_block(first, block, " " * column + "#")
            block = []
        if not block:
            first, column = line, token.start[1]
        block.append(lines[line])
    if block:
        yield from _comment_block(first, block, " " * column + "#")


def _comment_block(first: int, block: list[str], marker: str) -> Iterator[Paragraph]:
    texts = [line[len(marker) :] for line in block]
    start = 0
    for end in range(len(texts) + 1):
        ends = end == len(texts) or not texts[end].strip() or DIRECTIVE.match(block[end].strip())
        if ends:
            paragraph = block[start:end]
            # One space after the mark: anything deeper is laid out.
            if paragraph and not any(LAID_OUT.match(text[1:]) for text in texts[start:end]):
                joined = " ".join(text.strip() for text in texts[start:end])
                yield Paragraph(first + start, paragraph, _fill(joined, marker + " ", marker + " "))
            start = end + 1


def _docstrings(text: str) -> Iterator[Paragraph]:
    lines = text.split("\n")
    for node in _documented(ast.parse(text)):
        constant = _docstring(node)
        if constant is None or constant.end_lineno is None:
            continue
        first, end = constant.lineno - 1, constant.end_lineno
        opened = re.match(r'\s*[rR]?"""', lines[first])
        if opened is not None and lines[end - 1].rstrip().endswith('"""'):
            yield from _docstring_paragraphs(first, lines[first:end], opened[0], " " * constant.col_offset)


def _docstring_paragraphs(first: int, block: list[str], opened: str, indent: str) -> Iterator[Paragraph]:
    start = 0
    for end in range(len(block) + 1):
        if end < len(block) and block[end].strip():
            continue
        # Closing quotes on a line of their own stay there.
        last = end - 1 if end == len(block) and block[-1].strip() == '"""' else end
        paragraph = block[start:last]
        head = opened if start == 0 else indent
        texts = [line[len(head) :] if i == 0 else line[len(indent) :] for i, line in enumerate(paragraph)]
        if paragraph and not any(LAID_OUT.match(text) for text in texts):
            joined = " ".join(text.strip() for text in texts)
            yield Paragraph(first + start, paragraph, _fill(joined, head, indent))
        start = end + 1


def _documented(tree: ast.AST) -> Iterator[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> ast.Constant | None:
    match node.body:
        case [ast.Expr(value=ast.Constant(value=str()) as constant), *_]:
            return constant
        case _:
            return None


def _lua_comments(text: str) -> Iterator[Paragraph]:
    """Lines with the same indentation are a paragraph, unless one of them begins with a label."""
    paragraph: list[str] = []
    first, depth = 0, (0, 0)
    for number, line in enumerate([*text.split("\n"), ""]):
        found = LUA_COMMENT.match(line)
        content = found[3] if found else ""
        here = (len(found[1]), len(content) - len(content.lstrip())) if found else (0, 0)
        starts = not content.strip() or here != depth or LUA_LABEL.match(content.strip())
        if paragraph and starts:
            yield _lua_paragraph(first, paragraph)
            paragraph = []
        if content.strip():
            if not paragraph:
                first, depth = number, here
            paragraph.append(line)


def _lua_paragraph(first: int, paragraph: list[str]) -> Paragraph:
    found = LUA_COMMENT.match(paragraph[0])
    assert found is not None
    content = found[3]
    indent = f"{found[1]}--{found[2]}" + content[: len(content) - len(content.lstrip())]
    label = LUA_LABEL.match(content.strip())
    if label is not None and label[0].startswith("uses"):
        return Paragraph(first, paragraph, paragraph)
    joined = " ".join(line.strip()[2:].strip() for line in paragraph)
    return Paragraph(first, paragraph, _fill(joined, indent, indent + "  " if label else indent))


def _fill(text: str, head: str, indent: str) -> list[str]:
    """The lines of a paragraph. If the last one would be short, all become about equally long."""
    filled = _fill_to(WIDTH, text, head, indent)
    if len(filled) > 1 and len(filled[-1].strip()) < SHORT:
        for width in range(WIDTH // 2, WIDTH):
            balanced = _fill_to(width, text, head, indent)
            if len(balanced) == len(filled):
                return balanced
    return filled


def _fill_to(width: int, text: str, head: str, indent: str) -> list[str]:
    filled, is_empty = [head], True
    for word in words(text):
        if is_empty or len(filled[-1]) + 1 + len(word) <= width:
            filled[-1] += word if is_empty else f" {word}"
        else:
            filled.append(indent + word)
        is_empty = False
    return filled


if __name__ == "__main__":
    write()
