"""`import docket` costs next to nothing; every name is loaded when it is first used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import docket

from .processes import surroundings


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], env=surroundings(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_loads_nothing_heavy() -> None:
    run("import docket, sys; assert not {'redis', 'asyncio', 'opentelemetry', 'uncalled_for'} & set(sys.modules)")


def test_every_name_is_there() -> None:
    for name in docket.__all__:
        assert getattr(docket, name) is not None
        assert name in dir(docket)
    run(
        "\n".join(
            f"from docket import {name}\nimport docket\nassert docket.{name} is {name}" for name in docket.__all__
        )
    )


def test_all_names_come_with_a_star() -> None:
    run("from docket import *; Docket, Worker, Retry, testing")


def test_type_checkers_are_told_the_same_names_as_python() -> None:
    tree = ast.parse(Path(docket.__file__).read_text())
    told = {
        alias.name
        for block in tree.body
        if isinstance(block, ast.If)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert told | {"__version__"} == set(docket.__all__)


def test_modules_are_found_as_attributes() -> None:
    for module in ("dependencies", "docket", "execution", "worker", "instrumentation", "tasks", "strikelist"):
        run(f"import docket; assert docket.{module}.__name__ == 'docket.{module}'")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        docket.Nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from docket import Nothing")
