"""Every public name is explained: it has a docstring and is on a page of the reference, and each
error has an entry with its remedy."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docket import errors
from docket.storage.embedded.errors import EngineError
from tests.acceptance.public_api import INTERNAL, public_names

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
# Public modules besides those whose signatures the list of the public API holds.
MORE = {
    "docket.agenda": ["Agenda"],
    "docket.annotations": ["Annotation", "Logged"],
    "docket.dead": None,
    "docket.docket": None,
    "docket.instrumentation": ["healthcheck_server", "message_getter", "message_setter", "metrics_server"],
    "docket.tasks": ["fail", "sleep", "trace"],
}
# For the packages that embed docket; private by their names.
PRIVATE = {"docket.dependencies._Depends", "docket.dependencies._parameter_cache", "docket.execution._signature_cache"}
# For other packages of docket, not for users.
PRIVATE |= {f"docket.dependencies.{name}" for name in ("kept_age_ms", "kept_ages", "logged_fingerprints")}
PRIVATE |= {"docket.testing.servers.KINDS"}
# Values, which have no docstring of their own: the sources have one below them.
VALUES = {
    "docket.dependencies.DependencyFunction",
    "docket.execution.TaskFunction",
    "docket.strikelist.LiteralOperator",
}
VALUES |= {"docket.__version__", "docket.dead.LetterReason", "docket.docket.TaskCollection"}
VALUES |= {"docket.web.Answer", "docket.web.Guard"}
VALUES |= {f"docket.dependencies.current_{name}" for name in ("docket", "execution", "worker")}


def names() -> list[str]:
    found = public_names()
    for module, listed in MORE.items():
        found += [f"{module}.{name}" for name in listed or importlib.import_module(module).__all__]
    return sorted({name for name in found if name.rpartition(".")[2] not in INTERNAL} - PRIVATE)


def value_of(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def shown() -> set[int]:
    """What the pages show, whichever of its names they use."""
    paths = {path for page in REFERENCE.glob("*.md") for path in ENTRY.findall(page.read_text("utf-8"))}
    assert paths
    return {id(value_of(path)) for path in paths}


@pytest.mark.parametrize("name", names())
def test_a_public_name_is_explained(name: str) -> None:
    value = value_of(name)
    if inspect.ismodule(value) or name in VALUES:
        return
    documentation = value.__dict__.get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    assert documentation, f"{name} has no docstring"


@pytest.mark.parametrize("name", [name for name in names() if inspect.isclass(value_of(name))])
def test_every_method_of_a_public_class_is_explained(name: str) -> None:
    missing = [member for member, value in members(value_of(name)) if not inspect.getdoc(value)]
    assert not missing, f"{name}: these have no docstring: {missing}"


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that docket's own classes define."""
    for name in dir(kind):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if name.startswith("_") or owner is None or not owner.__module__.startswith("docket"):
            continue
        value = inspect.getattr_static(kind, name)
        if isinstance(value, property):
            yield name, value
        elif inspect.isroutine(value) or isinstance(value, (staticmethod, classmethod)):
            yield name, getattr(kind, name)


def test_every_public_name_is_on_a_page_of_the_reference() -> None:
    on_pages = shown()
    hidden = {"docket.__version__"}
    missing = [
        name
        for name in names()
        if not inspect.ismodule(value_of(name)) and name not in hidden and id(value_of(name)) not in on_pages
    ]
    assert not missing


def errors_of_users() -> dict[str, type[Exception]]:
    """The errors that a user may get or catch. Private subclasses are explained with their base."""
    found = [*vars(errors).values(), *map(value_of, names()), EngineError]
    return {kind.__name__: kind for kind in found if inspect.isclass(kind) and issubclass(kind, errors.DocketError)}


ERRORS = errors_of_users()


def test_all_errors_are_found() -> None:
    assert {"ServerUnreachable", "AdmissionBlocked", "EngineError", "ServerNotFound"} <= ERRORS.keys()


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_an_error_has_an_entry_with_meaning_and_remedy(name: str) -> None:
    page = (REFERENCE / "errors.md").read_text("utf-8")
    entry = re.search(rf"^##+ {name}$(.*?)(?=^##? |^### |\Z)", page, re.MULTILINE | re.DOTALL)
    assert entry, f"docs/reference/errors.md has no entry {name}"
    assert len(entry[1].split()) > 10
    if name != "DocketError":
        assert "**What to do.**" in entry[1], f"{name}: no remedy"
        for base in ERRORS[name].__bases__:
            if base.__module__ == "builtins" and base is not Exception:
                assert f"`{base.__name__}`" in entry[1], f"{name}: the entry does not say that it is a {base.__name__}"
