"""Words that the glossary has replaced do not come back in comments, docstrings, messages, pages
and tests (lint/words.toml, `[texts]`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from lint.exceptions import Exceptions
from lint.prose import pages
from lint.source import ROOT
from lint.words import LIST

FOLDERS = ("src", "tests", "bench", "chaos", "compat", "docs", "examples")
SUFFIXES = (".py", ".lua", ".sh")


def check() -> Iterator[str]:
    lists = tomllib.loads(LIST.read_text("utf-8"))
    old: dict[str, str] = lists["texts"]
    exceptions = Exceptions("words.toml", lists["allowed"])
    for path in texts():
        name = path.relative_to(ROOT).as_posix()
        for line, word in old_words(path.read_text("utf-8"), old):
            if not exceptions.allow(f"{name}: {word}"):
                yield f"{name}:{line}: {word!r} is an old word; write {old[word]!r}"
    yield from exceptions.unneeded()


def texts() -> Iterator[Path]:
    yield from pages()
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in SUFFIXES:
                yield file


def old_words(text: str, old: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Each old word in the text, with the first line that has it."""
    for word in old:
        found = _pattern(word).search(text)
        if found is not None:
            yield text.count("\n", 0, found.start()) + 1, word


def _pattern(word: str) -> re.Pattern[str]:
    """`hand back` also matches `handed-back`, `HANDS_BACK`, and the two words on two lines."""
    inflected = r"[\W_]+".join(rf"{re.escape(part)}(?:s|ed|ing)?" for part in word.split())
    return re.compile(rf"(?<![a-z]){inflected}(?![a-z])", re.IGNORECASE)
