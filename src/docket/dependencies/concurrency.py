"""A limit on the number of runs at the same time."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from uncalled_for import get_signature

from docket.execution import Execution
from docket.execution.arguments import display_name
from docket.execution.context import current_docket, current_execution, current_worker
from docket.ledger.limits import Verdict

from .admission import (
    Admission,
    SettledByLimit,
    ask_until_answered,
    call_arguments,
    positive_count,
    superseded,
)
from .plan import plan_for

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.worker import Worker

logger: logging.Logger = logging.getLogger("docket.dependencies")


class NeededSlot(NamedTuple):
    """A slot that a run needs, by the name of its limit,
    and the number of slots that the limit has."""

    name: str
    most: int


# The limits whose slots the run holds. A run takes the slots of all its limits at once.
_held: ContextVar[tuple[Execution | None, frozenset[str]]] = ContextVar("held_limits", default=(None, frozenset()))


class ConcurrencyBlocked(SettledByLimit):
    """The limit has no free slot, so the task is parked.
    The settlement that frees a slot wakes it."""

    def __init__(self, execution: Execution, concurrency_key: str, max_concurrent: int) -> None:
        super().__init__(execution, f"a concurrency limit of {max_concurrent} ({concurrency_key})")
        self.concurrency_key = concurrency_key
        self.max_concurrent = max_concurrent


class ConcurrencyLimit(Admission):
    """Allows at most `max_concurrent` runs at the same time.

    `Annotated[int, ConcurrencyLimit(2)]` limits each value of a parameter. As a parameter's
    default, `ConcurrencyLimit(max_concurrent=3)` limits the whole task, and
    `ConcurrencyLimit("customer_id", 1)` limits each value of the named argument. Limits of the same
    name in different scopes (`scope`) count separately. A task that finds no free slot is parked,
    in order of arrival. It occupies no worker, and it can be cancelled and replaced while it waits.
    Raises ValueError for a limit below 1.
    """

    rank = 3

    @overload
    def __init__(self, max_concurrent: int, /, *, scope: str | None = None) -> None: ...
    @overload
    def __init__(self, argument_name: str, max_concurrent: int = 1, scope: str | None = None) -> None: ...
    @overload
    def __init__(self, *, max_concurrent: int = 1, scope: str | None = None) -> None: ...
    def __init__(
        self, argument_name: str | int | None = None, max_concurrent: int = 1, scope: str | None = None
    ) -> None:
        super().__init__(scope)
        named = isinstance(argument_name, str)
        most = max_concurrent if named or argument_name is None else argument_name
        self.argument_name: str | None = argument_name if named else None
        self.max_concurrent: int = positive_count("ConcurrencyLimit", "max_concurrent", most)

    def validate_for(self, function: Callable[..., Any], parameter: str) -> None:
        super().validate_for(function, self.argument_name or parameter)
        parameters = get_signature(function).parameters
        takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        if self.argument_name is not None and self.argument_name not in parameters and not takes_any:
            known = ", ".join(name for name in parameters if name not in plan_for(function).parameters)
            # A warning and not an error: for compatibility,
            # such a task is accepted and fails when it runs.
            logger.warning(
                "%s: ConcurrencyLimit on %r limits an argument %r that the task does not have (it has: %s), so its runs will fail",
                display_name(function),
                parameter,
                self.argument_name,
                known or "none",
            )

    async def __aenter__(self) -> Self:
        execution = current_execution.get()
        own = self.needed_slot(execution, self.parameter, self.value)
        holder, names = _held.get()
        if holder is not execution:
            slots = _needed_slots(execution) or [own]
            await _acquire(execution, slots)
            names = frozenset(slot.name for slot in slots)
            _held.set((execution, names))
        if own.name not in names:
            raise RuntimeError(
                f"{execution.function_name}: a run takes all of its slots at once, so each ConcurrencyLimit must be "
                "declared by the task itself or by the worker"
            )
        return self

    @property
    def concurrency_key(self) -> str:
        """The name under which the limit counts the
        current run. Raises RuntimeError outside a run."""
        execution = current_execution.get(None)
        if execution is None:
            raise RuntimeError("ConcurrencyLimit.concurrency_key is available only inside a run")
        return self.needed_slot(execution, self.parameter, self.value).name

    def needed_slot(self, execution: Execution, parameter: str | None, value: Any) -> NeededSlot:
        """The slot of this limit that a run needs. Raises
        ValueError if the limited argument was not passed."""
        if self.argument_name is not None:
            arguments = call_arguments(execution)
            parameter = self.argument_name
            if parameter not in arguments:
                raise ValueError(
                    f"ConcurrencyLimit({parameter!r}): {execution.function_name} was scheduled without that argument; "
                    f"it has: {', '.join(arguments) or 'none'}"
                )
            value = arguments[parameter]
        return NeededSlot(self.limit_name(execution, parameter, value), self.max_concurrent)

    @classmethod
    @asynccontextmanager
    async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None]:
        """Writes the declared limits to the server. If a new release raised a limit, its parked
        tasks start at once instead of waiting for the next free slot."""
        limits = docket.ledger.limits
        for function_name, function in list(docket.tasks.items()):
            for parameter, limit in _declared(function, ()):
                group = limit.group_name(function_name, limit.argument_name or parameter)
                await ask_until_answered(partial(limits.declare, group, limit.max_concurrent), docket.ledger)
        yield


def _declared(function: Callable[..., Any], without: Iterable[str]) -> list[tuple[str | None, ConcurrencyLimit]]:
    """The limits of a function, each with its parameter. The parameter is None if the limit is for
    the whole task or names an argument."""
    plan = plan_for(function)
    declared: list[tuple[str | None, Any]] = [(None, d) for name, d in plan.parameters.items() if name not in without]
    return [(name, d) for name, d in [*declared, *plan.annotated()] if isinstance(d, ConcurrencyLimit)]


def _needed_slots(execution: Execution) -> list[NeededSlot]:
    """The slots that a run needs for its own limits and for the worker's limits, each once."""
    arguments = call_arguments(execution)
    limits = _declared(execution.function, arguments)
    passed = [arguments.get(name) for name in plan_for(execution.function).parameters]
    limits += [(None, d) for d in passed if isinstance(d, ConcurrencyLimit)]
    limits += [(None, d) for d in current_worker.get().dependencies.values() if isinstance(d, ConcurrencyLimit)]
    by_name: dict[str, NeededSlot] = {}
    for parameter, limit in limits:
        slot = limit.needed_slot(execution, parameter, arguments.get(parameter or ""))
        by_name[slot.name] = min(slot, by_name.get(slot.name, slot))
    return sorted(by_name.values())


async def _acquire(execution: Execution, slots: list[NeededSlot]) -> None:
    limits = current_docket.get().ledger.limits
    verdict, full = await ask_until_answered(
        lambda: limits.acquire(execution.key, execution.epoch, slots, taken=execution.taken)
    )
    if verdict is Verdict.LOST:
        raise superseded(execution)
    if verdict is not Verdict.ADMIT:
        raise ConcurrencyBlocked(execution, *slots[full - 1])
