"""Loads the objects that the command line names as `module:name`, and lists the functions that a
worker would know. An error is one line."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from docket.cli.support.failures import StopRequested, WrongUsage
from docket.docket import Docket
from docket.registry import did_you_mean
from docket.worker.running.call import worker_dependencies

logger: logging.Logger = logging.getLogger("docket.worker")


_search_here = True


def ignore_current_folder() -> None:
    """Modules of the current folder are no longer importable, not even with `python -m docket`."""
    global _search_here
    _search_here = False
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


def find_modules_here() -> None:
    """Makes modules of the current folder importable, as `python -m` does."""
    if not _search_here:
        return
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)


def check_tasks(docket: Docket, paths: Iterable[str], fallback: str | None) -> None:
    """Loads and registers the tasks, to find mistakes before the worker starts."""
    for path in paths:
        load("--tasks", path)
        try:
            docket.register_collection(path, unique=True)
        except (TypeError, ValueError) as error:
            raise WrongUsage(f"--tasks {path}: {_collection_problem(error)}") from error
    if fallback and not callable(load("--fallback-task", fallback)):
        raise WrongUsage(f"--fallback-task {fallback}: this is not a function")


def load_dependencies(path: str | None) -> Any:
    """Loads the worker's dependencies and checks them."""
    if not path:
        return None
    found = load("--dependencies", path)
    try:
        worker_dependencies(found)
    except (TypeError, ValueError) as error:
        problem = "this is not a mapping or a sequence" if "not iterable" in str(error) else error
        raise WrongUsage(f"--dependencies {path}: {problem}") from error
    return found


def _collection_problem(error: Exception) -> str:
    if "not iterable" in str(error):
        return "this is not a collection; write tasks = [first_task, second_task] in the module and name that list"
    return str(error)


def load(option: str, path: str) -> Any:
    """Loads the object `module:name`. Raises WrongUsage if it does not exist."""
    find_modules_here()
    module_name, _, name = path.rpartition(":")
    if not module_name or not name:
        raise WrongUsage(f"{option} {path}: write module:name, for example shop.tasks:tasks")
    module = _import(option, path, module_name)
    if not hasattr(module, name):
        raise WrongUsage(f"{option} {path}: module {module_name!r} has no {name!r}{did_you_mean(name, dir(module))}")
    return getattr(module, name)


def _import(option: str, path: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except StopRequested:
        raise
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and (name == missing or name.startswith(f"{missing}.")):
            problem = f"there is no module {missing!r}, neither installed nor in {os.getcwd()}"
            if name.endswith(".py"):
                problem = f"name the module, not its file: {path.replace('.py:', ':').replace('/', '.')}"
        else:
            problem = _in_module(error)
        raise WrongUsage(f"{option} {path}: {problem}") from error


def _in_module(error: BaseException) -> str:
    """Describes an error inside the module, with its file and line."""
    logger.debug("the module cannot be imported", exc_info=error)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}: {type(error).__name__}: {error}"


@dataclass(frozen=True)
class TaskFunctionInfo:
    """A task's name, its function as `module:qualname`, and
    its source as `file:line`, or "" if it is unknown."""

    name: str
    function: str
    source: str


def describe_task(name: str, function: Any) -> TaskFunctionInfo:
    body = _body(function)
    module, qualname = getattr(body, "__module__", None), getattr(body, "__qualname__", None)
    return TaskFunctionInfo(name, f"{module}:{qualname}" if module and qualname else repr(function), _source(body))


def _body(function: Any) -> Any:
    """The function itself, without decorators, partial arguments and instances."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    function = inspect.unwrap(function)
    return function if hasattr(function, "__qualname__") else type(function).__call__


def _source(body: Any) -> str:
    code = getattr(getattr(body, "__func__", body), "__code__", None)
    if code is None:
        return ""
    file = str(code.co_filename)
    path = os.path.relpath(file)
    return f"{file if path.startswith(os.pardir) else path}:{code.co_firstlineno}"
