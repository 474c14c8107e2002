"""Imports of our own modules stand at the top of a module, where a reader sees what it depends on.

A function may import one of our modules only for laziness that users notice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lint.exceptions import Exceptions
from lint.source import files

EXCEPTIONS: dict[str, str] = {}


def check() -> Iterator[str]:
    exceptions = Exceptions("imports", EXCEPTIONS)
    for path, text in files(".py"):
        for function, line, target in local_imports(ast.parse(text, path)):
            if not exceptions.allow(f"{path}:{function} imports {target}"):
                yield f"{path}:{line}: {function} imports {target}; imports of our own modules stand at the top"
    yield from exceptions.unneeded()


def local_imports(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """The function, the line and the module of each import of ours within a function."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            for target in _own(node):
                yield function.name, getattr(node, "lineno", 0), target


def _own(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=module, level=level):
            name = "." * level + (module or "")
            if level or name.split(".")[0] == "docket":
                yield name
        case ast.Import(names=names):
            yield from (alias.name for alias in names if alias.name.split(".")[0] == "docket")
        case _:
            pass
