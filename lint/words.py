"""Words that the glossary has replaced do not come
back as identifiers or file names (lint/words.toml)."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from lint.source import files

LIST = Path(__file__).with_suffix(".toml")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
LUA_TEXT = re.compile(r"--\[\[.*?\]\]|--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
LUA_NAME = re.compile(r"[A-Za-z_]\w*")


def check() -> Iterator[str]:
    banned: dict[str, str] = tomllib.loads(LIST.read_text("utf-8"))["banned"]
    for path, text in [*files(".py"), *files(".lua")]:
        for line, word in old_words(path, text, banned):
            yield f"{path}:{line}: {word!r} is an old word; write {banned[word]!r}"


def old_words(path: str, text: str, banned: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Each old word in an identifier of the file, with the
    first line that has it. Line 0 is the file's name."""
    seen: set[str] = set()
    identifiers = _python(text) if path.endswith(".py") else _lua(text)
    for line, identifier in [(0, Path(path).stem), *identifiers]:
        parts = _parts(identifier)
        for word in banned:
            if word not in seen and f"_{word}_" in parts:
                seen.add(word)
                yield line, word


@cache
def _parts(identifier: str) -> str:
    """`_layGhostsOf` and `LAY_GHOSTS_OF` are both `_lay_ghosts_of_`."""
    return "_".join(["", *(part.lower() for part in PART.findall(identifier)), ""])


def _python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string


def _lua(text: str) -> Iterator[tuple[int, str]]:
    code = LUA_TEXT.sub(lambda found: "\n" * found[0].count("\n") + " ", text)
    for number, line in enumerate(code.split("\n"), 1):
        for name in LUA_NAME.findall(line):
            yield number, name
