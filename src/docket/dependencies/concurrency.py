"""A limit on how many runs go on at a time."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from uncalled_for import get_signature

from docket.ledger.limits import Limits, Verdict

from .admission import Admission, Parked, call_arguments, name_of, patiently, positive_count, superseded
from .plan import plan_for
from .worker_view import current_docket, current_execution, current_worker

if TYPE_CHECKING:
    from docket.docket import Docket
    from docket.execution import Execution
    from docket.worker import Worker

logger: logging.Logger = logging.getLogger("docket.dependencies")


class Claim(NamedTuple):
    """A slot that a run needs."""

    name: str
    most: int


# Which limits a run holds: it takes the slots of all of them at once.
_held: ContextVar[tuple[Execution | None, frozenset[str]]] = ContextVar("held_limits", default=(None, frozenset()))


class ConcurrencyBlocked(Parked):
    """The task waits in line for a slot; whoever frees one wakes it."""

    def __init__(self, execution: Execution, concurrency_key: str, max_concurrent: int) -> None:
        super().__init__(execution, f"a concurrency limit of {max_concurrent} ({concurrency_key})")
        self.concurrency_key = concurrency_key
        self.max_concurrent = max_concurrent


class ConcurrencyLimit(Admission):
    """Lets at most `max_concurrent` runs go on at a time.

    `Annotated[int, ConcurrencyLimit(2)]` is a limit for each value of a parameter, a default
    `ConcurrencyLimit(max_concurrent=3)` one for the whole task, and a default
    `ConcurrencyLimit("customer_id", 1)` one for each value of the named argument. `scope` sets
    limits of one name apart. A task that finds no slot waits in line, in order of arrival, without
    a worker; it can be cancelled and replaced there. Raises ValueError for a limit below 1.
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
            # Said early, but no error here: such a task is accepted, and fails when it runs.
            logger.warning(
                "%s: ConcurrencyLimit on %r is for an argument %r, which the task does not have; it has: %s. Its runs will fail",
                name_of(function),
                parameter,
                self.argument_name,
                known or "none",
            )

    async def __aenter__(self) -> Self:
        execution = current_execution.get()
        own = self.claim(execution, self.parameter, self.value)
        holder, names = _held.get()
        if holder is not execution:
            claims = _all_claims(execution) or [own]
            await _acquire(execution, claims)
            names = frozenset(claim.name for claim in claims)
            _held.set((execution, names))
        if own.name not in names:
            raise RuntimeError(
                f"{execution.function_name}: a run takes all of its slots at once, so each ConcurrencyLimit must be "
                "declared by the task itself or by the worker"
            )
        return self

    @property
    def concurrency_key(self) -> str:
        """The name under which this limit counts, inside
        a task. Raises RuntimeError outside a run."""
        execution = current_execution.get(None)
        if execution is None:
            raise RuntimeError("ConcurrencyLimit.concurrency_key is known inside a run only: no task runs here")
        return self.claim(execution, self.parameter, self.value).name

    def claim(self, execution: Execution, parameter: str | None, value: Any) -> Claim:
        """What a run needs of this limit. Raises ValueError
        if the argument it is for was not passed."""
        if self.argument_name is not None:
            arguments = call_arguments(execution)
            parameter = self.argument_name
            if parameter not in arguments:
                raise ValueError(
                    f"ConcurrencyLimit({parameter!r}): {execution.function_name} was scheduled without that argument; "
                    f"it has: {', '.join(arguments) or 'none'}"
                )
            value = arguments[parameter]
        return Claim(self.limit_name(execution, parameter, value), self.max_concurrent)

    @classmethod
    @asynccontextmanager
    async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None]:
        """Tells the server of limits that a new release has changed: those who wait for one that
        was raised need not wait until somebody frees a slot."""
        book = Limits(docket.ledger)
        for function_name, function in list(docket.tasks.items()):
            for parameter, limit in _declared(function, ()):
                group = limit.group_name(function_name, limit.argument_name or parameter)
                await book.declare(group, limit.max_concurrent)
        yield


def _declared(function: Callable[..., Any], without: Iterable[str]) -> list[tuple[str | None, ConcurrencyLimit]]:
    """The limits of a function and the parameters they are
    for; None: the whole task, or the argument they name."""
    plan = plan_for(function)
    declared: list[tuple[str | None, Any]] = [(None, d) for name, d in plan.parameters.items() if name not in without]
    declared += [(name, d) for name, marks in plan.annotations.items() for d in marks]
    return [(name, d) for name, d in declared if isinstance(d, ConcurrencyLimit)]


def _all_claims(execution: Execution) -> list[Claim]:
    """The slots a run needs for its own limits and for the worker's, each once."""
    arguments = call_arguments(execution)
    limits = _declared(execution.function, arguments)
    passed = [arguments.get(name) for name in plan_for(execution.function).parameters]
    limits += [(None, d) for d in passed if isinstance(d, ConcurrencyLimit)]
    limits += [(None, d) for d in current_worker.get().dependencies.values() if isinstance(d, ConcurrencyLimit)]
    by_name: dict[str, Claim] = {}
    for parameter, limit in limits:
        claim = limit.claim(execution, parameter, arguments.get(parameter or ""))
        by_name[claim.name] = min(claim, by_name.get(claim.name, claim))
    return sorted(by_name.values())


async def _acquire(execution: Execution, claims: list[Claim]) -> None:
    book = Limits(current_docket.get().ledger)
    verdict, full = await patiently(lambda: book.acquire(execution.key, execution.epoch, claims, taken=execution.taken))
    if verdict is Verdict.LOST:
        raise superseded(execution)
    if verdict is not Verdict.ADMIT:
        raise ConcurrencyBlocked(execution, *claims[full - 1])
