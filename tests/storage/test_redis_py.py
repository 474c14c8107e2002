"""The private names of redis-py that docket uses: they are in one module, and the installed release
has them. `make test-redis-py` runs this with the oldest and the newest release of the range."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis import connection as blocking
from redis.asyncio import connection as aio
from redis.asyncio.client import Redis

import docket

ROOT = Path(docket.__file__).parent / "storage"
THE_MODULE = ROOT / "client" / "redis_py.py"
REPOSITORY = Path(__file__).parents[2]
# Methods that docket overrides, and attributes that it reads or sets.
METHODS: list[tuple[type[Any], str]] = [
    (aio.AbstractConnection, "_connect"),
    (aio.Connection, "_connection_arguments"),
    (aio.SSLConnection, "_connection_arguments"),
    (blocking.AbstractConnection, "_connect"),
    (blocking.AbstractConnection, "connect"),
    (blocking.AbstractConnection, "send_packed_command"),
    (blocking.AbstractConnection, "read_response"),
]
ASYNC_ATTRIBUTES = ("_reader", "_writer", "_parser")
BLOCKING_ATTRIBUTES = ("_sock", "socket_timeout", "socket_connect_timeout", "credential_provider")
PRIVATE = {"_connect", "_connection_arguments", "_sock", "_parser", "_reader", "_writer"}


def private_names_of_others(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Accesses such as `connection._writer`, but not those to attributes of `self`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE:
            owner = node.value
            if not (isinstance(owner, ast.Name) and owner.id in ("self", "cls")):
                yield node.lineno, node.attr


def test_one_module_has_all_private_names() -> None:
    wrong = [
        f"{path.name}:{line} uses {name}"
        for path in sorted(ROOT.rglob("*.py"))
        if path != THE_MODULE
        for line, name in private_names_of_others(ast.parse(path.read_text()))
    ]
    assert wrong == []
    assert list(private_names_of_others(ast.parse(THE_MODULE.read_text())))


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=lambda value: getattr(value, "__name__", value))
def test_the_installed_release_has_the_methods(owner: type[Any], name: str) -> None:
    assert inspect.isfunction(getattr(owner, name))


async def test_the_installed_release_has_the_attributes() -> None:
    connection: Any = Redis(host="127.0.0.1").connection_pool.make_connection()
    for name in ASYNC_ATTRIBUTES:
        assert hasattr(connection, name)
    assert callable(connection._parser.parse_error)
    assert isinstance(connection._parser.EXCEPTION_CLASSES, dict)
    threaded: Any = blocking.Connection()
    for name in BLOCKING_ATTRIBUTES:
        assert hasattr(threaded, name)


def test_the_installed_release_is_in_the_range_that_is_tested() -> None:
    project = (REPOSITORY / "pyproject.toml").read_text()
    wanted = re.search(r'"redis\[hiredis\]>=(\d+)\.(\d+),<(\d+)"', project)
    assert wanted is not None
    oldest, end = (int(wanted[1]), int(wanted[2])), int(wanted[3])
    version = tuple(int(part) for part in redis.__version__.split(".")[:2])
    assert oldest <= version < (end,)
    tested = re.findall(r"'(\d+)(?:\.(\d+))?\.\*'", (REPOSITORY / "tests" / "redis_py.sh").read_text())
    assert [tuple(int(n) for n in release if n) for release in tested] == [oldest, (end - 1,)]
