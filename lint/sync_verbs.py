"""`docket.sync` has the verbs of the async docket. `make sync` writes them from the sources of
those verbs: signatures, docstrings and calls."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lint.source import PACKAGE

FILE = PACKAGE / "sync" / "verbs.py"


class Source(NamedTuple):
    """A class whose public coroutine functions and async generators become plain methods."""

    path: str
    class_name: str
    # The object that has the verbs, as the call of a verb names it.
    owner: str


# Written by hand in `sync/docket.py`: scheduling, which happens in the caller's thread, and
# whatever returns an execution or a stream.
SOURCES = (
    Source("operator_verbs.py", "OperatorVerbs", "docket"),
    Source("dead/dead_letters.py", "DeadLetters", "docket.dead"),
)

_HEAD = '''"""The verbs of operators for code without an event loop.

`make sync` writes this file from {paths}: change them there.
"""

from __future__ import annotations

{imports}

from .producer import Producer, collected
'''

_CLASS = """

class {name}:
{docstring}

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
"""


def check() -> Iterator[str]:
    """One line if the file is not as `make sync` would write it."""
    if not FILE.exists() or FILE.read_text("utf-8") != text():
        yield f"src/docket/{FILE.relative_to(PACKAGE)}: differs from the async verbs; `make sync` writes it"


def text() -> str:
    """The whole file."""
    homes: dict[str, str] = {}
    classes = "".join(_class(source, homes) for source in SOURCES)
    paths = " and ".join(f"`{source.path}`" for source in SOURCES)
    imports = "\n".join(f"from {home} import {name}" for name, home in sorted(homes.items()))
    return _formatted(_HEAD.format(paths=paths, imports=imports) + classes)


def _class(source: Source, homes: dict[str, str]) -> str:
    module = _Module(PACKAGE / source.path)
    written = _CLASS.format(name=source.class_name, docstring=module.docstring(module.class_named(source.class_name)))
    for verb in module.class_named(source.class_name).body:
        if isinstance(verb, ast.AsyncFunctionDef) and not verb.name.startswith("_"):
            written += f"\n{_method(verb, module, source.owner)}"
            homes.update(module.homes_of(verb))
    return written


def _method(verb: ast.AsyncFunctionDef, module: _Module, owner: str) -> str:
    parameters, returns = module.parameters(verb), verb.returns
    assert returns is not None, verb.name
    call = f"{owner}.{verb.name}({', '.join(_forwarded(verb.args))})"
    if isinstance(returns, ast.Subscript) and ast.unparse(returns.value) == "AsyncGenerator":
        annotation, call = f"list[{ast.unparse(returns.slice)}]", f"collected({call})"
    else:
        annotation = ast.unparse(returns)
    return (
        f"    def {verb.name}({parameters}) -> {annotation}:\n"
        f"{module.docstring(verb)}\n"
        f"        {'' if annotation == 'None' else 'return '}self._producer.run(lambda docket: {call})\n"
    )


def _forwarded(given: ast.arguments) -> Iterator[str]:
    yield from (parameter.arg for parameter in [*given.posonlyargs, *given.args][1:])
    yield from (f"{parameter.arg}={parameter.arg}" for parameter in given.kwonlyargs)
    if given.kwarg is not None:
        yield f"**{given.kwarg.arg}"


class _Module:
    """The source of a module: where its names come from, and the text of its docstrings."""

    def __init__(self, path: Path) -> None:
        self._lines = path.read_text("utf-8").splitlines()
        self._tree = ast.parse("\n".join(self._lines))
        self._package = ["docket", *path.relative_to(PACKAGE).parent.parts]
        self._name = ".".join([*self._package, path.stem])
        self._imported = {
            alias.name: self._home(statement)
            for statement in ast.walk(self._tree)
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
        }
        self._private = {
            target.id: statement.value
            for statement in self._tree.body
            if isinstance(statement, ast.Assign)
            for target in statement.targets
            if isinstance(target, ast.Name) and target.id.startswith("_")
        }

    def class_named(self, name: str) -> ast.ClassDef:
        return next(node for node in self._tree.body if isinstance(node, ast.ClassDef) and node.name == name)

    def docstring(self, node: ast.ClassDef | ast.AsyncFunctionDef) -> str:
        """As it is written, so that it wraps as it does there."""
        statement = node.body[0]
        assert isinstance(statement, ast.Expr), f"{node.name} has no docstring"
        return "\n".join(self._lines[statement.lineno - 1 : statement.end_lineno])

    def parameters(self, verb: ast.AsyncFunctionDef) -> str:
        """The parameters, with the values of private defaults instead of their names."""
        given = verb.args
        given.defaults = [self._public(default) for default in given.defaults]
        given.kw_defaults = [None if default is None else self._public(default) for default in given.kw_defaults]
        return ast.unparse(given)

    def homes_of(self, verb: ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
        """The names that the signature uses, and the modules they come from."""
        assert verb.returns is not None
        for node in (found for part in (verb.args, verb.returns) for found in ast.walk(part)):
            if isinstance(node, ast.Name) and node.id != "AsyncGenerator":
                if node.id in self._imported:
                    yield node.id, self._imported[node.id]
                elif any(isinstance(own, ast.ClassDef) and own.name == node.id for own in self._tree.body):
                    yield node.id, self._name

    def _public(self, default: ast.expr) -> ast.expr:
        return self._private.get(default.id, default) if isinstance(default, ast.Name) else default

    def _home(self, statement: ast.ImportFrom) -> str:
        above = self._package[: len(self._package) - statement.level + 1] if statement.level else []
        return ".".join([*above, *filter(None, [statement.module])])


def _formatted(source: str) -> str:
    for arguments in (["check", "--fix-only", "--select", "I"], ["format"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(FILE), "-"]
        source = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return source


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
