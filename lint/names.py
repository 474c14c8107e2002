"""Names and first words that say nothing about the thing. A file has the name of a thing, not of an
activity; a docstring begins with the thing that it describes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from lint.exceptions import Exceptions
from lint.source import files

GERUND = re.compile(r"(?:^|_)[a-z]{2,}ing(?:_|$)")
OPENING = re.compile(r"(What|Who|The same)\b")

# File names with a word in -ing, with the reason.
EXCEPTIONS: dict[str, str] = {
    "docket/codec/keyring.py": "a keyring is a thing",
    "docket/codec/packing.py": "the field's word for a byte format",
    "docket/execution/waiting.py": "waits for states and results: no noun says it",
    "docket/instrumentation/tracing.py": "the field's word",
    "docket/storage/lua/parts/listing.lua": "a listing is a thing",
    "docket/storage/lua/upcoming.lua": "the verb of the ledger: a script has its name",
    "docket/sync/pending_call.py": "a pending call is a thing",
}


def check() -> Iterator[str]:
    exceptions = Exceptions("names.py", EXCEPTIONS)
    for path, _ in [*files(".py"), *files(".lua")]:
        if GERUND.search(PurePosixPath(path).stem) and not exceptions.allow(path):
            yield f"{path}: the name is an activity; use a noun"
    for path, text in files(".py"):
        for line, words in openings(text):
            yield f"{path}:{line}: a docstring begins with {words!r}; begin with the thing itself"
    yield from exceptions.unneeded()


def openings(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings that begin with a word that names nothing."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found = OPENING.match(ast.get_docstring(node) or "")
            if found is not None:
                yield node.body[0].lineno, found[1]
