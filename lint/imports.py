"""Our own modules are imported at the top of a module, so that its dependencies are visible.

A function may import one of our modules, by `import` or by `import_module("docket…")`, only if
users notice the saved time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lint.exceptions import Exceptions
from lint.source import files

EXCEPTIONS: dict[str, str] = {
    "docket/__init__.py:__getattr__ imports docket.": "`import docket` is quick: a producer does not load the worker",
    "docket/instrumentation/__init__.py:__getattr__ imports docket.instrumentation.http": "the HTTP server, for ports only",
    "docket/instrumentation/http.py:_prometheus_mirror imports docket.instrumentation.prometheus": "an optional package",
    "docket/storage/server.py:_embedded imports docket.storage.embedded": "needs modules that Windows lacks",
    "docket/cli/support/run_worker.py:announce imports docket.cli.support.rich_logs": "rich, on terminals only",
    "docket/cli/support/logs.py:_formatter imports docket.cli.support.rich_logs": "rich, on terminals only",
    "docket/cli/demo/__init__.py:_dashboard imports docket.cli.demo.dashboard": "an optional package",
}


def check() -> Iterator[str]:
    exceptions = Exceptions("imports.py", EXCEPTIONS)
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
        case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[name, *_]):
            if (module := _beginning(name)).split(".")[0] == "docket":
                yield module
        case _:
            pass


def _beginning(text: ast.expr) -> str:
    """The text of a constant, or of an f-string up to its first value."""
    if isinstance(text, ast.JoinedStr) and text.values:
        text = text.values[0]
    return text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
