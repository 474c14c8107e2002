"""The base class of services: repeats a step, and survives transient errors."""

from __future__ import annotations

import abc

from docket._aio import Backoff
from docket.errors import TRANSIENT, DocketError
from docket.instrumentation import REDIS_DISRUPTIONS, suppress_traces
from docket.storage.client.faults import DamagedData
from docket.storage.client.outages import Outages


class Service(abc.ABC):
    """One job of a worker. `step()` does a piece of it, and waits if there is nothing to do."""

    name: str
    out_of_traces = True
    # `Parts` sets this before the service runs.
    outages: Outages

    def __init__(self, labels: dict[str, str], most_pause: float) -> None:
        self._labels = labels
        self._backoff = Backoff(most=most_pause)
        self.problem: str | None = None

    @abc.abstractmethod
    async def step(self) -> None: ...

    async def recover(self) -> None:  # noqa: B027 - most services have nothing to do
        """Runs after a failed step, before the next step."""

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
            self.clear_problem()
        except (*TRANSIENT, DamagedData) as error:
            self.problem = str(error)
            REDIS_DISRUPTIONS.add(1, self._labels)
            self.outages.failed(self, self.name, error)
            await self.outages.pause(self._backoff.next_pause())
            await self._recover_quietly()

    def clear_problem(self) -> None:
        """Clears the problem: the server has answered, or the service does not need it now. A step
        that waits after the answer calls this itself."""
        self._backoff.reset()
        if self.problem is not None:
            self.problem = None
            self.outages.passed(self)

    async def _recover_quietly(self) -> None:
        try:
            await self.recover()
        except DocketError as error:
            # Even an error that is not transient, such as an embedded server that fails to start,
            # is not final here: the next step decides.
            self.outages.failed(self, self.name, error)
