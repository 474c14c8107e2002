"""The shape all services share: a step, again and again, that survives whatever passes."""

from __future__ import annotations

import abc

from docket._aio import Backoff
from docket.errors import TRANSIENT, DocketError
from docket.instrumentation import REDIS_DISRUPTIONS, suppress_traces
from docket.storage.outages import Outages


class Service(abc.ABC):
    """One duty of a worker. `step()` does a piece of it, waiting for work if there is none."""

    name: str
    out_of_traces = True
    # Given by the worker before it runs.
    outages: Outages

    def __init__(self, labels: dict[str, str], most_pause: float) -> None:
        self._labels = labels
        self._backoff = Backoff(most=most_pause)
        self.problem: str | None = None

    @abc.abstractmethod
    async def step(self) -> None: ...

    async def recover(self) -> None:  # noqa: B027 - most services have nothing to do
        """Called after a failed step, before the next."""

    async def run(self) -> None:
        if self.out_of_traces:
            suppress_traces()
        try:
            while True:
                await self._try_step()
        finally:
            self.outages.forget(self)

    async def _try_step(self) -> None:
        try:
            await self.step()
            self.is_well()
        except TRANSIENT as error:
            self.problem = str(error)
            REDIS_DISRUPTIONS.add(1, self._labels)
            self.outages.failed(self, self.name, error)
            await self.outages.pause(self._backoff.next_pause())
            await self._recover_quietly()

    def is_well(self) -> None:
        """The server has answered, or nothing is asked of
        it. A step that goes on to wait says so itself."""
        self._backoff.reset()
        if self.problem is not None:
            self.problem = None
            self.outages.passed(self)

    async def _recover_quietly(self) -> None:
        try:
            await self.recover()
        except DocketError as error:
            # Also one that is final here, such as an engine that
            # cannot be started just now: the next step decides.
            self.outages.failed(self, self.name, error)
