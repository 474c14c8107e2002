"""No monsters: a module or a Lua file has at most 600 lines, a class 400, a function 60.
A signature counts as one line: it may declare options."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from lint.exceptions import Exceptions
from lint.source import files

MODULE, CLASS, FUNCTION = 600, 400, 60

# Pieces that are longer, with the reason. An entry that is no longer needed is an error.
EXCEPTIONS: dict[str, str] = {}


@dataclass(frozen=True)
class Piece:
    name: str
    lines: int
    most: int


def check() -> Iterator[str]:
    """One line for each piece that is too long, and for each exception that is not needed."""
    exceptions = Exceptions("sizes.py", EXCEPTIONS)
    for piece in pieces():
        if piece.lines > piece.most and not exceptions.allow(piece.name):
            yield f"{piece.name}: {piece.lines} lines, at most {piece.most}"
    yield from exceptions.unneeded()


def pieces() -> Iterator[Piece]:
    for path, text in files(".py"):
        yield Piece(path, len(text.splitlines()), MODULE)
        yield from _parts(path, ast.parse(text, path))
    for path, text in files(".lua"):
        yield Piece(path, len(text.splitlines()), MODULE)


def _parts(name: str, node: ast.AST) -> Iterator[Piece]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{name}:{child.name}" if ":" not in name else f"{name}.{child.name}"
            assert child.end_lineno is not None
            lines = child.end_lineno - child.lineno + 1 - _of_signatures(child)
            yield Piece(inner, lines, CLASS if isinstance(child, ast.ClassDef) else FUNCTION)
            yield from _parts(inner, child)
        else:
            yield from _parts(name, child)


def _of_signatures(node: ast.AST) -> int:
    """The lines of the signatures of a function, or of a class, besides one for each."""
    functions = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    return sum(function.body[0].lineno - function.lineno - 1 for function in functions)
