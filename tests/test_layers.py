"""Which parts of docket may speak to the server. The import
contract in pyproject.toml says which may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import docket

ROOT = Path(docket.__file__).parent
CLIENT_LIBRARIES = {"redis", "hiredis"}
# Methods that send a command or a script by its name.
SENDING = {
    "ask",
    "ask_alone",
    "ask_blocking",
    "execute_command",
    "run_blocking",
    "run_script",
    "run_script_and_wait",
    "run_script_blocking",
    "tell",
    "evalsha",
    "eval",
}


def modules_outside(*packages: str) -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*.py")) if path.relative_to(ROOT).parts[0] not in packages]


def imports_at_run_time(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield node.lineno, node.module
        else:
            yield from imports_at_run_time(node)


def sent_by_name(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Calls such as `server.ask(key, "GET", key)` and `ledger.run_script("census", ())`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDING:
            words = [word.value for word in node.args[:3] if isinstance(word, ast.Constant)]
            yield from ((node.lineno, word) for word in words if isinstance(word, str))


def test_only_storage_imports_the_client_library() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in modules_outside("storage")
        for line, name in imports_at_run_time(ast.parse(path.read_text()))
        if name.partition(".")[0] in CLIENT_LIBRARIES
    ]
    assert wrong == []


def test_only_the_ledger_and_storage_send_commands_and_scripts() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} sends {word}"
        for path in modules_outside("storage", "ledger")
        for line, word in sent_by_name(ast.parse(path.read_text()))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        'await self._connection.ask("XREADGROUP", "GROUP", group)',
        'await server.ask(key, "ZSCORE", key, name)',
        'await ledger.run_script("next_due", ())',
        'await client.execute_command("PING")',
    ],
)
def test_the_check_sees_a_command_and_a_script(line: str) -> None:
    assert list(sent_by_name(ast.parse(f"async def f():\n    {line}")))
