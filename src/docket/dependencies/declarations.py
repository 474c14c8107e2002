"""The declarations of functions: finds mistakes in them, and describes them as texts for observers
(docs/design/web.md)."""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Annotated, Any, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from uncalled_for import Dependency, get_signature
from uncalled_for import validate_dependencies as validate_declarations

from docket.annotations import Logged
from docket.execution.arguments import display_name, resolved_signature
from docket.execution.functions import is_async
from docket.model.times import format_duration

from . import current
from .admission import Admission
from .cron import Cron
from .perpetual import Perpetual
from .plan import BEHAVIOURS, Plan, plan_for


def validate_dependencies(function: Callable[..., Any]) -> None:
    """Raises a ValueError that names the task if its
    dependencies are wrong or contradict each other."""
    name = display_name(function)
    _validate_defaults(function, name)
    try:
        validate_declarations(function)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    for declared, dependency in _declared(function):
        check = getattr(dependency, "validate_for", None)
        if check is not None:
            check(function, declared)
    _validate_automatic(function, name)


def _declared(function: Callable[..., Any]) -> list[tuple[str, Dependency[Any]]]:
    plan = plan_for(function)
    marks = [(name, d) for name, found in plan.annotations.items() for d in found]
    return [*plan.parameters.items(), *marks]


def _validate_defaults(function: Callable[..., Any], name: str) -> None:
    """Refuses defaults that look like dependencies but
    are not. The body would get them unresolved."""
    for parameter in get_signature(function).parameters.values():
        mistake = _mistake(parameter.default)
        if mistake:
            raise ValueError(f"{name}: the default of {parameter.name!r} is {mistake}")


def _mistake(default: Any) -> str | None:
    if _is_not_called(default):
        return f"{default.__name__} itself; call it: {default.__name__}(…)"
    if str(type(cast(object, default))) == "<class 'fastapi.params.Depends'>":
        return "FastAPI's Depends, which is for its routes; a task needs `from docket import Depends`"
    if isinstance(default, Dependency) and not callable(factory := getattr(cast(Any, default), "factory", callable)):
        return f"a dependency on {factory!r}, which is not a function; write Depends(function), not Depends(function())"
    return None


def _is_not_called(default: Any) -> bool:
    if isinstance(default, type):
        return issubclass(default, Dependency)
    return inspect.isfunction(default) and default.__module__ == current.__name__


def _validate_automatic(function: Callable[..., Any], name: str) -> None:
    """Refuses required parameters: docket schedules an automatic task without arguments."""
    plan = plan_for(function)
    perpetual = plan.single(Perpetual)
    if perpetual is None or not perpetual.automatic:
        return
    for parameter in get_signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is inspect.Parameter.empty and parameter.name not in plan.parameters:
            raise ValueError(
                f"{name}: an automatic {type(perpetual).__name__} task is scheduled without arguments, "
                f"but {parameter.name!r} is required; give it a default or use automatic=False"
            )


# Of one worker, of one declaration, and of one text in it.
MOST_FUNCTIONS, MOST_BYTES, _LONGEST = 1_000, 4_000, 200
_MOST_PARAMETERS = 50

_texts: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def declarations_of(tasks: Mapping[str, Callable[..., Any]]) -> dict[str, str]:
    """The declarations of the functions as JSON, by task name. A function that cannot be described
    is left out: it must not keep the worker from starting."""
    found: dict[str, str] = {}
    for name, function in islice(tasks.items(), MOST_FUNCTIONS):
        text = _text_of(function)
        if text is not None:
            found[name] = text
    return found


def _text_of(function: Callable[..., Any]) -> str | None:
    try:
        if function in _texts:
            return _texts[function]
    except TypeError:
        # It cannot be referenced weakly.
        pass
    try:
        text = _short(describe(function))
    except Exception:
        return None
    with contextlib.suppress(TypeError):
        _texts[function] = text
    return text


def _short(described: dict[str, Any]) -> str:
    text = json.dumps(described)
    for least in ("parameters", "behaviours"):
        if len(text) > MOST_BYTES:
            text = json.dumps({**described, "parameters": [], least: []})
    return text


def describe(function: Callable[..., Any]) -> dict[str, Any]:
    """The declaration of a function as JSON values."""
    plan, signature = plan_for(function), resolved_signature(function)
    perpetual = plan.single(Perpetual)
    is_cron = isinstance(perpetual, Cron) and type(perpetual).next_time is Cron.next_time
    has_interval = perpetual is not None and not isinstance(perpetual, Cron)
    summary = (inspect.getdoc(function) or "").strip().partition("\n")[0]
    return {
        "runs_in": _runs_in(function, plan),
        "module": _cut(str(getattr(function, "__module__", "") or "")),
        "summary": _cut(summary) or None,
        "parameters": [
            _parameter(parameter)
            for name, parameter in islice(signature.parameters.items(), _MOST_PARAMETERS)
            if name not in plan.parameters
        ],
        "logged": list(Logged.annotated_parameters(signature))[:_MOST_PARAMETERS],
        "behaviours": [
            [
                _cut(name),
                _cut(type(dependency).__name__),
                _cut(behaviour_text(dependency)),
                _is_behaviour(dependency),
                isinstance(dependency, Admission),
            ]
            for name, dependency in plan.declared()[:_MOST_PARAMETERS]
        ],
        "automatic": perpetual is not None and perpetual.automatic,
        "cron": cast(Cron, perpetual).expression if is_cron else None,
        "timezone": str(cast(Cron, perpetual).tz) if is_cron else None,
        "every": perpetual.every.total_seconds() if has_interval and perpetual is not None else None,
    }


def _runs_in(function: Callable[..., Any], plan: Plan) -> str:
    if plan.process is not None:
        return "process"
    return "async" if is_async(function) else "thread"


def _is_behaviour(dependency: Dependency[Any]) -> bool:
    """Whether it changes how the task runs, rather than what it is called with."""
    return isinstance(dependency, BEHAVIOURS) or type(dependency).__name__ in ("MaxLosses", "KeepFailures", "Process")


def _parameter(parameter: inspect.Parameter) -> str:
    """The parameter and its type. Its default may be somebody's data."""
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = parameter.annotation
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if annotation is inspect.Parameter.empty:
        return _cut(star + parameter.name)
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _cut(f"{star}{parameter.name}: {text}")


def behaviour_text(dependency: Dependency[Any]) -> str:
    """A dependency as it is written: its class, and the arguments that differ from the defaults, if
    they are numbers, names or times."""
    name = type(dependency).__name__
    if not _is_behaviour(dependency) and not isinstance(dependency, Admission):
        return name
    try:
        parameters = inspect.signature(type(dependency).__init__).parameters.values()
    except (TypeError, ValueError):
        return name
    shown: list[str] = []
    for parameter in islice(parameters, 1, None):
        value = getattr(dependency, parameter.name, parameter.default)
        text = _value_text(value)
        if text is not None and not _is_default(value, parameter.default):
            shown.append(f"{parameter.name}={text}")
    return f"{name}({', '.join(shown)})"


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and value == default


def _value_text(value: Any) -> str | None:
    if isinstance(value, timedelta):
        return format_duration(value.total_seconds())
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, tuple | list | set | frozenset):
        items = [_value_text(item) for item in islice(cast("tuple[Any, ...]", value), 10)]
        return f"({', '.join(item for item in items if item)})" if all(items) else None
    return None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
