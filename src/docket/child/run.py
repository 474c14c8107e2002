"""One run in a child: resolves the dependencies, calls the function, and closes what it opened."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import copy_context
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from docket.codec.codecs import PICKLE
from docket.codec.error_texts import class_name, error_text, printable
from docket.codec.tracebacks import failure_place
from docket.dependencies import CompletionHandler, FailureHandler, Plan, Resolved, Timeout, plan_for, resolve
from docket.dependencies.plan import in_child
from docket.execution import Execution
from docket.execution.function_runtimes import is_async
from docket.execution.plain_functions import sync_caller
from docket.execution.run_context import current_docket, current_execution, current_worker
from docket.instrumentation.tracing import continue_trace
from docket.model.states import ExecutionState
from docket.model.times import from_ms

from .context import ChildCaller, ChildExecution, ChildProgress, ChildWorker
from .copies import ending_copies
from .limits import limit_memory
from .messages import MessageKind, RunRequest, RunResult

if TYPE_CHECKING:
    from .program import Child


_BEHAVIOURS = (Timeout, FailureHandler, CompletionHandler)


class Terminated(SystemExit):
    """The worker ends this run. It is not an Exception, so that functions do not catch it."""


@cache
def find_function(module: str, qualname: str) -> Callable[..., Any]:
    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


@cache
def plan_in_child(function: Callable[..., Any]) -> Plan:
    return in_child(plan_for(function))


def not_for_us(number: int, frame: object) -> None:
    """Ignores a signal. Programs that the function starts do not inherit this handler, as they
    would inherit SIG_IGN."""


class ChildRun:
    """One run. `run` returns how it ended, and raises Terminated if the worker ends it."""

    def __init__(self, child: Child, request: RunRequest) -> None:
        self._child = child
        self._request = request
        self._loop = child.loop
        self._resolved = Resolved()
        self._before: dict[str, dict[str, Any]] = {}
        self._execution: Execution | None = None

    def run(self) -> RunResult:
        try:
            limit_memory(self._request.memory)
            value = self._run_in_context()
            sealed = None if value is None else self._seal(value)
            result = RunResult(sealed)
        except Terminated:
            raise
        except asyncio.CancelledError as error:
            limit_memory(None)
            result = RunResult(cancelled=str(error))
        except BaseException as error:
            limit_memory(None)
            result = _failure(error)
        limit_memory(None)
        result.behaviours = self._changed_behaviours()
        return result

    def _seal(self, value: Any) -> bytes:
        request, function = self._request, self._function()
        return self._child.docket.payloads.seal_result(
            request.key, request.epoch, ExecutionState.COMPLETED, function, value
        )

    def _function(self) -> Callable[..., Any]:
        return find_function(self._request.module, self._request.qualname)

    def _run_in_context(self) -> Any:
        """Dependencies are opened and closed by one asyncio task, and the function sees the context
        variables that they set."""
        context = copy_context()
        opened: asyncio.Future[None] = self._loop.create_future()
        body_over: asyncio.Future[Any] = self._loop.create_future()
        task = self._loop.create_task(self._open_and_close(opened, body_over), context=context)
        if is_async(self._function()):
            opened.add_done_callback(lambda _: None)
            return self._run_async(task)
        waiting = asyncio.wait([task, opened], return_when=asyncio.FIRST_COMPLETED)
        self._run_async(self._loop.create_task(waiting), of=task)
        if opened.done():
            self._call_plain(context.run, body_over)
        return self._run_async(task)

    def _call_plain(self, in_context: Callable[..., Any], body_over: asyncio.Future[Any]) -> None:
        """Calls the function in the main thread, where signal handlers work."""
        previous = signal.signal(signal.SIGTERM, self._terminate)
        try:
            body_over.set_result(in_context(self._call))
        except BaseException as error:
            body_over.set_result(_Raised(error))
        finally:
            signal.signal(signal.SIGTERM, previous)

    def _call(self) -> Any:
        caller = ChildCaller(self._loop, self._child.pipe)
        sync_caller.set(caller)
        assert self._execution is not None
        self._execution.serve_progress(caller)
        with ending_copies(self._child.pipe):
            return self._function()(*self._args(), **{**self._execution.kwargs, **self._resolved.values})

    def _args(self) -> tuple[Any, ...]:
        assert self._execution is not None
        return self._execution.args if self._resolved.args is None else self._resolved.args

    def _terminate(self, number: int, frame: object) -> None:
        if self._child.pipe.has_news():
            raise Terminated(128 + number)

    def _run_async(self, task: asyncio.Task[Any], of: asyncio.Task[Any] | None = None) -> Any:
        """Runs the event loop until the task is done. A SIGTERM cancels the run."""
        cancelled = task if of is None else of
        terminated = False

        def terminate() -> None:
            nonlocal terminated
            if self._child.pipe.has_news():
                terminated = True
                cancelled.cancel()

        self._loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            if terminated:
                raise Terminated(128 + signal.SIGTERM) from None
            raise
        finally:
            self._loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, not_for_us)

    async def _open_and_close(self, opened: asyncio.Future[None], body_over: asyncio.Future[Any]) -> Any:
        function = self._function()
        plan = plan_in_child(function)
        execution = self._execution = self._make_execution(function)
        if self._child.wants_docket(function):
            await self._child.open_docket()
        current_docket.set(self._child.docket)
        current_worker.set(ChildWorker(self._child.docket, self._request))
        current_execution.set(execution)
        continue_trace(self._request.span)
        self._child.shared.enter_context()
        async with AsyncExitStack() as stack:
            if not plan.is_plain:
                await resolve(self._resolved, stack, plan, execution, {})
            self._bind_behaviours()
            if is_async(function):
                with ending_copies(self._child.pipe):
                    return await self._call_async(function, execution)
            opened.set_result(None)
            result: Any = await body_over
            if isinstance(result, _Raised):
                raise result.error
            if not inspect.isawaitable(result):
                return result
            with ending_copies(self._child.pipe):
                return await result

    def _call_async(self, function: Callable[..., Any], execution: Execution) -> Awaitable[Any]:
        return function(*self._args(), **{**execution.kwargs, **self._resolved.values})

    def _make_execution(self, function: Callable[..., Any]) -> Execution:
        request, docket = self._request, self._child.docket
        args, kwargs, trace_context = docket.payloads.open_call(
            request.key, request.function_name, function, request.call
        )
        execution = ChildExecution(
            docket,
            function,
            args,
            kwargs,
            request.key,
            from_ms(request.due_ms),
            request.attempt,
            trace_context,
            request.redelivered,
            request.function_name,
            request.generation,
        )
        execution.epoch = request.epoch
        execution.state, execution.worker = ExecutionState.RUNNING, request.worker
        execution.started_at = from_ms(request.started_ms)
        child = self._child
        execution.use_progress(ChildProgress(child.pipe, docket, child.open_docket, request.key, request.epoch))
        return execution

    # Behaviours

    def _bind_behaviours(self) -> None:
        for name, value in self._behaviours().items():
            if isinstance(value, Timeout) and self._request.timeout_seconds is not None:
                value.follow(time.monotonic() + self._request.timeout_seconds, self._extend)
            self._before[name] = dict(vars(value))

    def _behaviours(self) -> dict[str, Any]:
        return {name: value for name, value in self._resolved.values.items() if isinstance(value, _BEHAVIOURS)}

    def _extend(self, by: timedelta) -> None:
        self._child.pipe.send(MessageKind.EXTEND, self._request.epoch, by.total_seconds())

    def _changed_behaviours(self) -> bytes | None:
        """The handlers that the body has changed, for the worker to ask, and the next run that it
        has scheduled."""
        changed = {
            name: value
            for name, value in self._behaviours().items()
            if not isinstance(value, Timeout) and _differs(value, self._before.get(name, {}))
        }
        next_run = self._execution.next_run if self._execution is not None else None
        if not changed and next_run is None:
            return None
        return pickle.dumps((changed, next_run), protocol=5)


def _failure(error: BaseException) -> RunResult:
    return RunResult(
        error=PICKLE.encode_error(error, None),
        place=failure_place(error),
        text=printable(error_text(error)),
        kind=printable(class_name(error)),
    )


class _Raised:
    """An exception of the function. A future cannot hold every exception."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _differs(behaviour: Any, before: dict[str, Any]) -> bool:
    """By identity: the values may be the task's arguments, which need not be comparable."""
    now = cast("dict[str, Any]", vars(behaviour))
    return now.keys() != before.keys() or any(value is not before[name] for name, value in now.items())
