"""Prose in Markdown wraps at 100 columns. `python -m lint`
checks it, `python -m lint.prose` wraps the pages.

Paragraphs and list items are prose. Tables, code, headings and HTML are not. A paragraph is wrapped
only if one of its lines is too long, so a short change stays a short diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML

from lint.source import ROOT

WIDTH = 100
# Indentation, quote marks and list markers before the text of a paragraph.
PREFIX = re.compile(r"\s*(?:(?:[-*+]|\d+[.)])\s+|>\s?)*")
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
# A line that starts with one of these would end the paragraph or become a list, a heading or HTML.
STARTS_A_BLOCK = re.compile(r"(?:[-+*]|=+|-+|_{3,}|\*{3,}|#{1,6}|\d+[.)])$|[>|]|<[!?/a-zA-Z]|```|~~~")
HARD_BREAK = re.compile(r"(?:  |\\)$")


def pages() -> Iterator[Path]:
    for page in sorted(ROOT.rglob("*.md")):
        if not any(part.startswith(".") for part in page.relative_to(ROOT).parts):
            yield page


def wrap(text: str) -> str:
    """The page with every paragraph wrapped that has a line over the width."""
    lines = text.split("\n")
    for first, end in reversed(list(too_wide(text))):
        lines[first:end] = fill(lines[first:end])
    wrapped = "\n".join(lines)
    if html(wrapped) != html(text):
        raise ValueError("wrapping would change what the page shows")
    return wrapped


def too_wide(text: str) -> Iterator[tuple[int, int]]:
    """The first line, and the line after the last, of each paragraph that is not wrapped."""
    lines = text.split("\n")
    for token in parser().parse(text):
        if token.type != "paragraph_open" or token.map is None:
            continue
        first, end = token.map
        paragraph = lines[first:end]
        if any(len(line) > WIDTH for line in paragraph) and fill(paragraph) != paragraph:
            yield first, end


def fill(paragraph: list[str]) -> list[str]:
    """The lines of a paragraph, wrapped. A paragraph with hard line breaks stays as it is."""
    if any(HARD_BREAK.search(line) for line in paragraph[:-1]):
        return paragraph
    found = PREFIX.match(paragraph[0])
    prefix = found[0] if found else ""
    if len(paragraph) > 1 and (second := PREFIX.match(paragraph[1])) and len(second[0]) >= len(prefix):
        following = second[0]
    else:
        following = re.sub(r"[^\s>]", " ", prefix)
    text = " ".join([paragraph[0][len(prefix) :].strip(), *(line.strip("> \t") for line in paragraph[1:])])
    filled = [prefix]
    for word in words(text):
        line = filled[-1]
        is_empty = len(line) == len(prefix if len(filled) == 1 else following)
        if is_empty or STARTS_A_BLOCK.match(word) or len(line) + 1 + len(word) <= WIDTH:
            filled[-1] = line + word if is_empty else f"{line} {word}"
        else:
            filled.append(following + word)
    return filled


def words(text: str) -> list[str]:
    """The parts between which a line may end: code stays in one piece."""
    joined = CODE_SPAN.sub(lambda span: span[0].replace(" ", "\0"), text)
    return [word.replace("\0", " ") for word in joined.split()]


def html(text: str) -> str:
    """What the page shows; the end of a line within a paragraph is a space."""
    return parser().render(text)


def parser() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", renderer_cls=_OneLine)
    markdown.enable("table")
    return markdown


class _OneLine(RendererHTML):
    def softbreak(self, *_: object) -> str:
        return " "


def check() -> Iterator[str]:
    for page in pages():
        for first, _ in too_wide(page.read_text("utf-8")):
            yield f"{page.relative_to(ROOT)}:{first + 1}: prose wraps at {WIDTH}; `python -m lint.prose` wraps it"


def write() -> None:
    for page in pages():
        text = page.read_text("utf-8")
        if (wrapped := wrap(text)) != text:
            page.write_text(wrapped, "utf-8")


if __name__ == "__main__":
    write()
