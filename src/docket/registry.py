"""The functions that a docket knows, by name."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterable
from types import CodeType
from typing import Any

from docket.dependencies import validate_dependencies
from docket.errors import TaskNotRegistered
from docket.execution import TaskFunction
from docket.execution.arguments import note_function
from docket.execution.functions import LAMBDA, is_generator, underlying
from docket.model.bounds import check_name

TaskCollection = Iterable[TaskFunction]
"""Functions that are registered together: what `--tasks module:name` names."""
# Users may register a function under the name of a built-in task.
_BUILT_IN = "docket.tasks"


def name_of(function: Any) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"{function!r} has no __name__, so it cannot be a task; register it with names=[…]")
    return name


def own_name(function: Any) -> str:
    """The default name of a function. Workers find the function by this name."""
    name = name_of(function)
    if name == LAMBDA:
        raise TypeError(
            "a lambda has no name by which a worker could find it: write a function, or register it with names=[…]"
        )
    return name


def check_function(function: Any) -> None:
    """Raises TypeError if the function cannot be a task. The caller
    sees it at the call, instead of later in a worker."""
    if inspect.iscoroutine(function):
        function.close()
        name = function.__name__
        raise TypeError(f"{name}(…) has been called already: pass the function itself, as in docket.add({name})(…)")
    if not callable(function):
        raise TypeError(f"{function!r} is not a function, so it cannot be a task")
    if isinstance(function, type) and not hasattr(function, "__await__"):
        raise TypeError(
            f"{describe(function)} is a class, so it cannot be a task: pass a function, for instance a method "
            f"of an object, as in docket.add({function.__name__}(…).method)(…)"
        )
    if is_generator(function):
        raise TypeError(
            f"{describe(function)} is a generator, so it cannot be a task: a task is a function that returns"
        )


class Registry:
    """Names and the functions behind them."""

    def __init__(self) -> None:
        self.tasks: dict[str, TaskFunction] = {}
        # The functions of collections by name, and the collection of each.
        self._collected: dict[str, tuple[TaskFunction, str]] = {}

    def register(self, function: TaskFunction, names: Iterable[str] | None = None) -> None:
        """Makes a function known.

        Raises TypeError for a function that cannot be a task,
        ValueError if its dependencies contradict each other.
        """
        check_function(function)
        given = list(names) if names else [own_name(function)]
        validate_dependencies(function)
        note_function(function)
        for name in given:
            check_name(name)
            taken = self.tasks.get(name)
            if taken is not None and _are_different(taken, function):
                warnings.warn(
                    f"task {name!r} was {located(taken)} and is now {located(function)}: workers find a function by its "
                    f"name, so only the last one runs; rename one of them, for example with "
                    f"docket.register({_call_name(function)}, names=[{_another_name(function, name)!r}])",
                    stacklevel=_callers_level(),
                )
            self.tasks[name] = function

    def register_collection(self, path: str, *, unique: bool = False) -> None:
        """Makes every function of `module:collection` known.

        With `unique`, raises ValueError if another function of this or an earlier collection has
        the same name.
        """
        for function in load_object(path):
            check_function(function)
            name = own_name(function)
            known, known_path = self._collected.setdefault(name, (function, path))
            taken = self.tasks.get(name)
            if known is function and taken is not None and getattr(taken, "__module__", None) != _BUILT_IN:
                known, known_path = taken, "registered before"
            if unique and _are_different(known, function):
                place = known_path if known is taken else f"in {known_path}"
                raise ValueError(
                    f"two functions have the name {name!r}: {located(known)} ({place}) and {located(function)} "
                    f"(in {path}); workers find a function by its name, so rename one of them"
                )
            self.register(function)

    def find(self, function: TaskFunction | str) -> tuple[TaskFunction, str]:
        """The function and its name. Functions need not be registered first; names do."""
        if isinstance(function, str):
            found = self.tasks.get(function)
            if found is None:
                known = ", ".join(sorted(self.tasks))
                hint = did_you_mean(function, self.tasks)
                raise TaskNotRegistered(f"no task is registered as {function!r}{hint}; registered names: {known}")
            return found, function
        name = name_of(function)
        if self.tasks.get(name) != function:
            self.register(function)
        return function, name


def _are_different(a: Any, b: Any) -> bool:
    return a != b and not _is_same_place(a, b)


def _is_same_place(a: Any, b: Any) -> bool:
    """Whether both are one definition, imported or reloaded twice, which is not a clash."""
    code_a, code_b = _code(a), _code(b)
    if code_a is None or code_b is None:
        return False
    return (code_a.co_filename, code_a.co_firstlineno) == (code_b.co_filename, code_b.co_firstlineno)


def _code(function: Any) -> CodeType | None:
    """The code of a function. For a decorated function, the code of the inner function: all
    functions of a decorator share the code of its wrapper."""
    try:
        function = inspect.unwrap(function)
    except ValueError:
        return None
    return getattr(underlying(function), "__code__", None)


def describe(function: Any) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


def located(function: Any) -> str:
    """A function with the file and the line of its definition, if it has them."""
    code = _code(function)
    return describe(function) if code is None else f"{describe(function)} ({code.co_filename}:{code.co_firstlineno})"


def _call_name(function: Any) -> str:
    return getattr(function, "__name__", "function")


def _another_name(function: Any, name: str) -> str:
    module = str(getattr(function, "__module__", None) or "_").rpartition(".")[2]
    return f"{name}_2" if module.startswith("_") else f"{module}_{name}"


def _callers_level() -> int:
    """The stack level of the first caller outside docket: a warning should show that line."""
    frame, level = sys._getframe(1), 1  # pyright: ignore[reportPrivateUsage] - warnings skip packages only since Python 3.12
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "docket":
        frame, level = frame.f_back, level + 1
    return level


def load_object(path: str) -> Any:
    """Loads the object `module:attribute`. Raises ValueError,
    ImportError or AttributeError with the reason."""
    module_name, separator, attribute = path.rpartition(":")
    if not separator or not module_name or not attribute:
        raise ValueError(f"{path!r} must have the form module:name")
    module = importlib.import_module(module_name)
    try:
        return getattr(module, attribute)
    except AttributeError:
        hint = did_you_mean(attribute, dir(module))
        raise AttributeError(f"module {module_name!r} has no {attribute!r} (in {path!r}){hint}") from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for the end of a message, or nothing."""
    import difflib  # only mistakes need it

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
