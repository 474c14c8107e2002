"""Encodes and stores the values and exceptions of runs."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from typing import Any

from docket.docket import Docket
from docket.errors import PayloadTooLarge
from docket.ledger import Ending
from docket.ledger.endings import APART, ELSEWHERE, VALUE
from docket.ledger.payloads import (
    LARGEST_CALL,
    LARGEST_RESULT,
    Payload,
    call_payload,
    published_payload,
    result_payload,
)
from docket.model.states import ExecutionState
from docket.storage.subscriptions import may_have_listeners
from docket.worker.children.process_calls import SealedResult

from .runs import Run
from .settlement_writer import WriteDeadlines

logger: logging.Logger = logging.getLogger("docket.worker")


class Results:
    """Puts a value into its ending, or stores it and puts a reference to it into the ending."""

    def __init__(self, docket: Docket, deadlines: WriteDeadlines) -> None:
        self._docket = docket
        self._deadlines = deadlines
        self._ttl_ms = docket.ledger.ttl_ms

    def seal(self, run: Run, result: Any) -> bytes:
        """Raises Unserializable or PayloadTooLarge."""
        payload = result.data if isinstance(result, SealedResult) else self._seal(run, result)
        if len(payload) > self._docket.max_payload:
            raise PayloadTooLarge(
                f"the result takes {len(payload):,} bytes, more than the {self._docket.max_payload:,} allowed "
                "(Docket(max_payload=…)); store it elsewhere and return the address"
            )
        return payload

    def _seal(self, run: Run, result: Any) -> bytes:
        function = run.execution.function
        return self._docket.payloads.seal_result(run.key, run.epoch, ExecutionState.COMPLETED, function, result)

    async def put(self, run: Run, result: Any, ending: Ending) -> None:
        """Raises Unserializable or PayloadTooLarge, or any error of the result storage."""
        payload = self.seal(run, result)
        storage = self._docket.given_result_storage
        if storage is None:
            ending.kind, ending.payload = VALUE, payload
            return
        # Named after the run, not the key: a run that no longer
        # counts cannot overwrite its successor's result.
        name = f"{run.key}:{run.epoch}"
        await storage.put(
            name,
            {"data": base64.b64encode(payload).decode()},
            collection=self._docket.results_collection,
            ttl=self._ttl_ms / 1000,
        )
        ending.kind, ending.payload = ELSEWHERE, name.encode("utf-8", "surrogatepass")

    async def store_apart(self, run: Run, ending: Ending) -> Payload | None:
        """Stores a large value or exception, and leaves a reference to it in the ending."""
        if len(ending.payload) <= LARGEST_RESULT:
            return None
        payload = result_payload(run.epoch, ending.payload, self._ttl_ms)
        await self.store(run, payload)
        ending.kind, ending.payload = APART, payload.reference
        return payload

    async def store_for_listeners(self, run: Run, ending: Ending) -> None:
        """Stores a large value of a run that another one follows, but only if a caller listens.
        Otherwise every run of a chain would leave a value on the server."""
        payload = published_payload(run.epoch, ending.payload)
        if await may_have_listeners(self._docket.server, self._docket.keys.task_channel(run.key)):
            await self.store(run, payload)
        ending.kind, ending.payload = APART, payload.reference

    async def store_call(self, run: Run, call: bytes | None) -> Payload | None:
        """Stores the call of the next run if it is too large for the record."""
        if call is None or len(call) <= LARGEST_CALL:
            return None
        payload = call_payload(call, ends_a_run=True)
        await self.store(run, payload)
        return payload

    async def store(self, run: Run, payload: Payload) -> None:
        """Tries until the payload is stored. Each try may take twice as long as the one before. A
        worker that stops cancels the run if that takes too long.

        Raises CancelledError itself if the payload cannot be stored for a long time although the
        lease is renewed: then the task is requeued.
        """
        patience, size = 1.0, f"{len(payload.data):,}"
        deadline = self._deadlines.begin(len(payload.data))

        def try_longer(error: Exception) -> None:
            nonlocal patience
            patience *= 2
            if deadline.is_over:
                logger.error(
                    "%s bytes for task %r could not be stored for %.0f s; the task is requeued and runs again",
                    size, run.key, deadline.seconds,
                )  # fmt: skip
                raise asyncio.CancelledError("docket: the result cannot be stored") from error

        run.storing_since = time.monotonic()
        try:
            await self._docket.server.outages.until_answered(
                lambda: self._docket.ledger.payloads.store(payload, patience=patience),
                f"storing {size} bytes for task {run.key!r}",
                on_failure=try_longer,
            )
        finally:
            run.storing_since = None
