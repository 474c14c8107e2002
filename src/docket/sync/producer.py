"""The producer of a sync docket opens a session
when it is first used, and schedules calls in it."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from docket.calls import CallFields, batch_span, check_chunk_size, executions_of, in_chunks, task_span
from docket.docket import Docket
from docket.errors import NotOpen
from docket.execution import Execution, ProgressEvent, StateEvent, TaskCall
from docket.instrumentation import inject_context, is_tracing

from .background_loop import LoopThread, this_process
from .open_docket import OpenDocket

T = TypeVar("T")

HOW_TO_OPEN = "open it again with docket.open() or `with docket:`"


class Producer:
    """The sessions of one sync docket: one per process, and a new one each time it is opened.

    Sessions open and close on the background loop, so no lock guards them: a fork could leave one
    locked for ever.
    """

    def __init__(self, make: Callable[[], Docket]) -> None:
        self._make = make
        # Never opened: it checks the settings, and knows the tasks of all sessions.
        self.unopened: Docket = make()
        self._session: OpenDocket | None = None
        self._opening: asyncio.Task[OpenDocket] | None = None
        self._is_closed = False
        self._finalizer: weakref.finalize[[], Producer] | None = None

    # Sessions

    def open(self) -> None:
        self._is_closed = False
        self.session()

    def close(self) -> None:
        self._is_closed = True
        session, self._session = self._session, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if session is not None and session.is_usable:
            session.close()

    @property
    def is_open(self) -> bool:
        """Whether there is a session in this process."""
        return self._session is not None and self._session.is_usable

    def session(self) -> OpenDocket:
        session = self._session
        if session is None or not session.is_usable:
            loop_thread = this_process.loop_thread()
            session = loop_thread.run(lambda: self._join_opening(loop_thread))
        return session

    def run(self, call: Callable[[Docket], Awaitable[T]]) -> T:
        """Runs a call of the open docket on the background loop."""
        session = self.session()
        return session.run(lambda: call(session.docket))

    async def _join_opening(self, loop_thread: LoopThread) -> OpenDocket:
        """The session of this process. Callers that come while it opens share it, and its error."""
        if self._is_closed:
            raise NotOpen(f"the docket was closed: {HOW_TO_OPEN}")
        session, opening, loop = self._session, self._opening, asyncio.get_running_loop()
        if session is not None and session.is_usable:
            return session
        if opening is None or opening.done() or opening.get_loop() is not loop:
            # In a context of its own: the session outlives the caller's spans.
            opening = loop.create_task(self._open_session(loop_thread), context=contextvars.Context())
            self._opening = opening
        return await asyncio.shield(opening)

    async def _open_session(self, loop_thread: LoopThread) -> OpenDocket:
        docket = self._make()
        docket.registry = self.unopened.registry
        session = OpenDocket(docket, loop_thread)
        await session.open()
        self._session = session
        self._finalizer = weakref.finalize(self, session.close_later)
        self._finalizer.atexit = False
        return session

    # Calls

    def schedule(self, fields: CallFields, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Execution:
        session = self.session()
        docket = session.docket
        execution = fields.execution(docket, args, kwargs)
        if is_tracing():
            with task_span(docket, fields.verb, execution):
                execution.trace_context = inject_context()
                session.schedule(execution, fields.replace)
        else:
            session.schedule(execution, fields.replace)
        return execution

    def schedule_many(self, calls: Iterable[TaskCall], chunk_size: int | None, *, replace: bool) -> list[Execution]:
        check_chunk_size(chunk_size)
        session = self.session()
        docket = session.docket
        executions: list[Execution] = []
        with batch_span(docket, "replace_many" if replace else "add_many", executions):
            executions += executions_of(docket, calls)
            for chunk in in_chunks(executions, chunk_size):
                session.schedule_many(chunk, replace)
        return executions

    def watch(self, key: str) -> Iterator[StateEvent | ProgressEvent]:
        session = self.session()
        events = session.docket.watch(key)

        async def next_event() -> StateEvent | ProgressEvent | None:
            return await anext(events, None)

        try:
            while (event := session.run(next_event)) is not None:
                yield event
        finally:
            # Not waited for: Python may collect this generator in any thread.
            session.start(events.aclose)


async def collected(items: AsyncIterable[T]) -> list[T]:
    """All items of an async generator."""
    return [item async for item in items]
