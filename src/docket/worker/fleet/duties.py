"""The duties that one worker of the fleet has for all (docs/design/lease-protocol.md, Duties).

The server elects a leader and its deputy. The leader stages, checks leases, sweeps, folds
statistics and compares settings; the deputy takes over from it. Other duties have a name. Whichever
worker asks for one first has it, for as long as it asks again in time:

* `SEEDING`: adds the automatic tasks of a deploy. Only a worker with the same functions can do it.
* `SAMPLING`: publishes gauges. Only a worker whose process exports metrics can do it.
* `RESUMING`: releases the tasks of a resumed pause.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType
from typing import Any, cast

from docket.dependencies import Perpetual, plan_for
from docket.execution import TaskFunction
from docket.ledger import Duty, Ledger

SEEDING, SAMPLING, RESUMING = "seeding", "sampling", "resuming"


class Duties:
    """The worker's duties, as far as the worker knows. Only the
    event loop changes them; the renewal thread reads them, too."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.duty: Duty = Duty.NONE
        # Whether the worker accepts a vacant duty. A worker that stops does not.
        self.willing: bool = True
        # The worker's id. The registration sets it.
        self.worker: str = ""
        self._changed: Callable[[], None] = _nothing

    @property
    def leads(self) -> bool:
        return self.duty is Duty.LEADER

    def on_change(self, listener: Callable[[], None]) -> None:
        self._changed = listener

    def assign(self, duty: Duty) -> None:
        if duty is not self.duty:
            self.duty = duty
            self._changed()

    async def resign(self) -> None:
        """Also without a duty: the server may have given it one in this moment, and must not offer
        it another."""
        self.willing = False
        self.duty = Duty.NONE
        await self._ledger.fleet.resign(self.worker)

    async def take(self, name: str, seconds: float) -> bool:
        """Whether this worker has the named duty. It
        keeps the duty for so many seconds from now."""
        return await self._ledger.fleet.lead(name, self.worker, int(seconds * 1000))


def _nothing() -> None:
    pass


# Deploys


def deploy_fingerprint(tasks: Mapping[str, TaskFunction]) -> str:
    """Workers with the same code and settings belong to the same deploy. A digest of the registered
    functions: their names, modules and code, and when they perpetuate themselves."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tasks):
        for part in (name, *_parts(tasks[name])):
            data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def _parts(function: TaskFunction) -> Iterator[str | bytes]:
    yield f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    code: Any = getattr(inspect.unwrap(function), "__code__", None)
    # A mock has a `__code__`, too, which passes isinstance().
    if type(code) is CodeType:
        yield from _code_parts(code)
    perpetual = plan_for(function).single(Perpetual)
    if perpetual is not None:
        yield f"{type(perpetual).__qualname__} {perpetual.automatic} {perpetual.every!r} {getattr(perpetual, 'expression', '')!r}"
        yield str(getattr(perpetual, "tz", ""))


def _code_parts(code: CodeType) -> Iterator[str | bytes]:
    yield code.co_code
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_parts(constant)
        elif isinstance(constant, frozenset):
            # Sorted, because the order of a frozenset depends on the hash seed.
            yield repr(sorted(repr(item) for item in cast("frozenset[Any]", constant)))
        else:
            yield repr(constant)
