"""The shape all services share: a step, again and again, that survives whatever passes."""

from __future__ import annotations

import abc
import logging

from docket.instrumentation import REDIS_DISRUPTIONS, suppress_traces
from docket.model.errors import DocketError
from docket.storage.faults import PASSING

from .backoff import Backoff

logger = logging.getLogger("docket.worker")


class Service(abc.ABC):
    """One duty of a worker. `step()` does a piece of it, waiting for work if there is none."""

    name: str
    out_of_traces = True

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
        while True:
            try:
                await self.step()
                self._backoff.reset()
                self.problem = None
            except PASSING as error:
                self.problem = str(error)
                REDIS_DISRUPTIONS.add(1, self._labels)
                logger.warning("%s: %s; going on", self.name, error)
                await self._backoff.pause()
                await self._recover_quietly()

    async def _recover_quietly(self) -> None:
        try:
            await self.recover()
        except DocketError as error:
            # Also one that is final here, such as an engine that cannot be started just now: the next step decides.
            logger.warning("%s: %s", self.name, error)
