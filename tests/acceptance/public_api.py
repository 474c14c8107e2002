"""The public API as text, one line per name:
`python -m tests.acceptance.public_api` writes public_api.txt again."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("public_api.txt")
COMMAND = "python -m tests.acceptance.public_api"
MODULES = (
    "docket",
    "docket.dependencies",
    "docket.errors",
    "docket.execution",
    "docket.strikelist",
    "docket.sync",
    "docket.testing",
    "docket.testing.servers",
    "docket.web",
    "docket.worker",
)
# Exported by docket.dependencies for other packages of docket, not for users.
INTERNAL = {"Plan", "Resolved", "SettledByLimit", "WorkerContext", "argument_check", "governing", "max_losses_of"}
INTERNAL |= {"plan_for", "resolve", "resolve_immediately"}


def describe() -> str:
    """Every public name. A class comes with its public methods,
    properties and constants, inherited ones included."""
    listed: dict[int, str] = {}
    return "".join(f"{line}\n" for module in MODULES for line in _module(module, listed))


def public_names() -> list[str]:
    """The paths of all public names, a name once for each module that exports it."""
    return [
        f"{path}.{name}" for path in MODULES for name in sorted(set(_names(importlib.import_module(path))) - INTERNAL)
    ]


def _module(path: str, listed: dict[int, str]) -> Iterator[str]:
    """`listed`: where a class or function was described already, under another name."""
    module = importlib.import_module(path)
    for name in sorted(set(_names(module)) - INTERNAL):
        value = getattr(module, name)
        if (inspect.isclass(value) or inspect.isfunction(value)) and id(value) in listed:
            yield f"{path}.{name} is {listed[id(value)]}"
        else:
            listed[id(value)] = f"{path}.{name}"
            yield from _member(f"{path}.{name}", value)


def _names(module: types.ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return module.__all__
    return [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]


def _member(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, types.ModuleType):
        yield f"{path}: a module"
    elif inspect.isclass(value):
        yield from _class(path, value)
    elif inspect.isfunction(value) and not _is_of_docket(value):
        # Each release of the other package may have its own parameters.
        yield f"{path} of {_package(value)}"
    elif inspect.isfunction(value):
        yield f"{path}{_signature(value)}"
    else:
        yield f"{path}: a value"


def _class(path: str, kind: type) -> Iterator[str]:
    if not _is_of_docket(kind):
        yield f"class {path} of {_package(kind)}"
        return
    bases = [base.__name__ for base in kind.__mro__[1:] if not _is_of_docket(base)]
    bases = [name for name in bases if name not in {"ABC", "BaseException", "Generic", "object"}]
    yield f"class {path}({', '.join(bases)})" if bases else f"class {path}"
    if issubclass(kind, Enum):
        yield from (f"{path}.{member.name} = {member.value!r}" for member in kind)
    elif inspect.isfunction(kind.__init__):
        yield f"{path}.__init__{_signature(kind.__init__)}"
    for name in sorted(_attributes(kind)):
        yield from _attribute(f"{path}.{name}", inspect.getattr_static(kind, name))


def _is_of_docket(value: Any) -> bool:
    return value.__module__.startswith("docket.")


def _package(value: Any) -> str:
    return value.__module__.partition(".")[0]


def _attributes(kind: type) -> set[str]:
    """Names of the class and of its bases in docket. Members
    of an enumeration are listed with their values."""
    bases = [base for base in kind.__mro__ if _is_of_docket(base)]
    names = {name for base in bases for name in vars(base) if not name.startswith("_")}
    return names - set(kind.__members__) if issubclass(kind, Enum) else names


def _attribute(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, staticmethod | classmethod):
        yield f"{path}{_signature(value.__func__)}: {type(value).__name__}"
    elif inspect.isfunction(value):
        yield f"{path}{_signature(value)}"
    elif isinstance(value, property) or inspect.isdatadescriptor(value):
        yield f"{path}: property"
    else:
        yield f"{path}: attribute"


def _signature(function: Any) -> str:
    """Names, kinds and defaults. Types are left to the type
    checker, whose spelling differs between Pythons."""
    signature = inspect.signature(function)
    parameters = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    text = str(inspect.Signature(parameters))
    # The members of a set have no order of their own.
    text = re.sub(r"frozenset\(\{(.*?)\}\)", lambda found: f"{{{', '.join(sorted(found[1].split(', ')))}}}", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


if __name__ == "__main__":
    FILE.write_text(describe())
