"""Public names, signatures, fields and the kinds of errors."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import importlib
import inspect
from datetime import timedelta
from typing import Any

from compat.probe.place import Place, eventually, running
from docket import Cron, Docket, ExponentialRetry, Logged, Perpetual, Retry, Timeout

NAMES = {
    "docket": "Agenda CallArgument ConcurrencyLimit Cooldown Cron CurrentDocket CurrentExecution CurrentWorker CycleError "
    "Debounce Depends Disposition Docket Execution ExecutionCancelled ExecutionState ExponentialRetry Logged Perpetual "
    "Progress RateLimit Retry Shared StrikeList TaskArgument TaskCall TaskKey TaskLogger Timeout Worker testing __version__",
    "docket.dependencies": "AdmissionBlocked CompletionHandler ConcurrencyBlocked Dependency DependencyFunction "
    "FailedDependency FailureHandler ForcedRetry Runtime SharedContext TaskOutcome current_docket current_execution "
    "current_worker format_duration get_annotation_dependencies get_dependency_parameters get_single_dependency_of_type "
    "get_single_dependency_parameter_of_type resolved_dependencies validate_dependencies _Depends _parameter_cache",
    "docket.docket": "Docket DocketSnapshot RunningExecution WorkerInfo TaskCollection",
    "docket.execution": "Execution ExecutionState ExecutionProgress Disposition ExecutionCancelled TaskCall TaskFunction "
    "StateEvent ProgressEvent compact_signature get_signature _signature_cache",
    "docket.strikelist": "StrikeList Strike Restore StrikeInstruction Operator LiteralOperator",
    "docket.annotations": "Annotation Logged",
    "docket.agenda": "Agenda",
    "docket.tasks": "trace fail sleep standard_tasks",
    "docket.testing": "assert_task_scheduled assert_task_not_scheduled assert_task_count assert_no_tasks",
    "docket.worker": "Worker default_fallback_task",
    "docket.instrumentation": "TASKS_ADDED TASKS_REPLACED TASKS_SCHEDULED TASKS_CANCELLED TASKS_STARTED TASKS_REDELIVERED "
    "TASKS_STRICKEN TASKS_SUPERSEDED TASKS_COMPLETED TASKS_FAILED TASKS_SUCCEEDED TASKS_RETRIED TASKS_PERPETUATED "
    "TASK_DURATION TASK_PUNCTUALITY TASKS_RUNNING STRIKES_IN_EFFECT REDIS_DISRUPTIONS QUEUE_DEPTH SCHEDULE_DEPTH CACHE_SIZE "
    "healthcheck_server metrics_server message_getter message_setter",
    "docket.cli": "app",
}


async def present(place: Place) -> dict[str, Any]:
    """Every name of the contract is there."""
    seen: dict[str, Any] = {}
    for module, names in NAMES.items():
        try:
            found = importlib.import_module(module)
        except ImportError as error:
            seen[module] = repr(error)
            continue
        seen |= {f"{module}.{name}": hasattr(found, name) for name in names.split()}
    return seen


async def exported(place: Place) -> dict[str, Any]:
    """`from docket import *`."""
    return dict.fromkeys(importlib.import_module("docket").__all__, True)


async def signatures(place: Place) -> dict[str, Any]:
    """Parameters and public members of every name."""
    seen: dict[str, Any] = {}
    for module, names in NAMES.items():
        found = importlib.import_module(module)
        for name in names.split():
            if not name.startswith("_"):
                seen |= _described(name, getattr(found, name, None))
    return seen


async def attributes(place: Place) -> dict[str, Any]:
    """Public attributes that are not methods, on living objects."""
    async with place.docket() as docket:
        docket.register(_dawdle)
        execution = await docket.add(_dawdle)()
        seen = _values("Docket", docket) | _values("Execution", execution)
        seen |= _values("ExecutionProgress", execution.progress) | _values("StrikeList", docket.strike_list)
        async with running(docket) as worker:
            seen |= _values("Worker", worker)
            await eventually(lambda: _state(docket, execution.key, "running"))
            snapshot = await docket.snapshot()
            seen |= _values("DocketSnapshot", snapshot) | _values("RunningExecution", snapshot.running[0])
            seen |= _values("WorkerInfo", next(iter(await docket.workers())))
            await docket.cancel(execution.key)
    for behaviour in (Retry(), Perpetual(), Cron("* * * * *"), Timeout(timedelta(1)), Logged(), ExponentialRetry()):
        seen |= _values(type(behaviour).__name__, behaviour)
    return seen


async def _dawdle() -> None:
    await asyncio.sleep(30)


async def _state(docket: Docket, key: str, state: str) -> bool:
    found = await docket.get_execution(key)
    return found is not None and found.state.value == state


def _values(name: str, found: Any) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for member in dir(found):
        if not member.startswith("_"):
            try:
                value = getattr(found, member)
            except Exception:
                continue
            if not callable(value):
                seen[f"{name}.{member}"] = True
    return seen


def _described(name: str, found: Any) -> dict[str, Any]:
    if isinstance(found, type) and issubclass(found, enum.Enum):
        return {f"{name}.{member}": value.value for member, value in found.__members__.items()}
    if isinstance(found, type):
        return _class(name, found)
    if inspect.isroutine(found):
        return _parameters(name, found)
    if name.isupper():  # the instruments
        return {f"{name}.kind": type(found).__name__.removeprefix("_Proxy")}
    return {}


def _class(name: str, found: type) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    if issubclass(found, BaseException):
        bases = [kind.__name__ for kind in found.__mro__ if kind.__module__ == "builtins"]
        seen |= {f"{name}.is_a.{kind}": True for kind in bases}
    if dataclasses.is_dataclass(found):
        seen |= {f"{name}.field.{field.name}": True for field in dataclasses.fields(found)}
    seen |= _parameters(name, found)
    for member in dir(found):
        if member.startswith("_"):
            continue
        value = inspect.getattr_static(found, member)
        if isinstance(value, classmethod | staticmethod) or inspect.isroutine(value):
            seen |= _parameters(f"{name}.{member}", getattr(found, member))
    return seen


def _parameters(name: str, function: Any) -> dict[str, Any]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return {f"{name}.callable": True}
    seen: dict[str, Any] = {f"{name}.callable": True}
    required: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name.startswith("_"):
            continue
        seen[f"{name}.({parameter.name})"] = parameter.kind.name.lower()
        if parameter.default is not parameter.empty:
            seen[f"{name}.({parameter.name}).default"] = _default(parameter.default)
        elif parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            required.append(parameter.name)
    return seen | {f"{name}.required": required}


def _default(value: Any) -> str:
    if isinstance(value, list | tuple):
        return repr(list(value))
    return type(value).__name__.strip("_") if " object at 0x" in repr(value) else repr(value)
