"""One run in a child: resolves the dependencies, calls the function, and closes what it opened."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pickle
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from contextvars import copy_context
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from docket.codec.codecs import PICKLE
from docket.codec.error_texts import class_name, error_text, failure_place, printable
from docket.dependencies import (
    CompletionHandler,
    FailureHandler,
    Plan,
    Resolved,
    Timeout,
    plan_for,
    resolve,
    resolve_immediately,
)
from docket.dependencies.plan import in_child
from docket.execution import Execution
from docket.execution.context import current_docket, current_execution, current_worker
from docket.execution.functions import is_async, sync_caller
from docket.instrumentation.tracing import continue_trace
from docket.model.states import ExecutionState
from docket.model.times import from_ms

from .context import ChildCaller, ChildExecution, ChildProgress
from .forks import ending_copies
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


# It looks into annotations, which takes longer than a short run.
_is_async = cache(is_async)


@cache
def plan_in_child(function: Callable[..., Any]) -> Plan:
    return in_child(plan_for(function))


class ChildRun:
    """One run. `run` returns how it ended, and raises Terminated if the worker ends it."""

    def __init__(self, child: Child, number: int, request: RunRequest) -> None:
        self._child = child
        self.number = number
        self._request = request
        self._loop = child.loop
        self._resolved = Resolved()
        self._before: dict[str, dict[str, Any]] = {}
        self._execution: Execution | None = None
        # Set while the event loop runs.
        self._task: asyncio.Task[Any] | None = None
        self._terminated: Terminated | None = None

    def run(self) -> RunResult:
        child = self._child
        try:
            child.limit_memory(self._request.memory)
            value = self._call_function()
            sealed = None if value is None else self._seal(value)
            result = RunResult(sealed)
        except Terminated:
            raise
        except asyncio.CancelledError as error:
            child.limit_memory(None)
            result = RunResult(cancelled=str(error))
        except BaseException as error:
            child.limit_memory(None)
            result = _failure(error)
        child.limit_memory(None)
        result.behaviours = self._changed_behaviours()
        return result

    def terminate(self, code: int) -> None:
        """The worker ends the run, with a signal, in the main thread: at an await of an async
        function, and anywhere else in a plain one."""
        terminated = Terminated(code)
        if self._task is None:
            raise terminated
        self._terminated = terminated
        self._loop.call_soon_threadsafe(self._task.cancel)

    def _seal(self, value: Any) -> bytes:
        request, function = self._request, self._function()
        return self._child.docket.payloads.seal_result(
            request.key, request.epoch, ExecutionState.COMPLETED, function, value
        )

    def _function(self) -> Callable[..., Any]:
        return find_function(self._request.module, self._request.qualname)

    def _call_function(self) -> Any:
        function = self._function()
        plan = plan_in_child(function)
        if plan.is_immediate and not _is_async(function) and not self._child.wants_docket(function):
            return self._call_immediately(function, plan)
        return self._call_with_loop(function, plan)

    # A plain function whose dependencies need no event loop

    def _call_immediately(self, function: Callable[..., Any], plan: Plan) -> Any:
        context = copy_context()
        if not context.run(self._resolve_immediately, function, plan):
            self._resolved = Resolved()
            return self._call_with_loop(function, plan)
        result = context.run(self._call)
        if not inspect.isawaitable(result):
            return result
        return self._run_loop(self._loop.create_task(self._await(result), context=context))

    async def _await(self, result: Awaitable[Any]) -> Any:
        with ending_copies(self._child.pipe):
            return await result

    def _resolve_immediately(self, function: Callable[..., Any], plan: Plan) -> bool:
        execution = self._enter(function)
        if not plan.is_plain and not resolve_immediately(self._resolved, plan, execution, self._child.worker):
            return False
        self._bind_behaviours()
        return True

    # All others

    def _call_with_loop(self, function: Callable[..., Any], plan: Plan) -> Any:
        """Dependencies are opened and closed by one asyncio task, and the function sees the context
        variables that they set."""
        context = copy_context()
        opened: asyncio.Future[None] = self._loop.create_future()
        body_over: asyncio.Future[Any] = self._loop.create_future()
        task = self._loop.create_task(self._open_and_close(function, plan, opened, body_over), context=context)
        if _is_async(function):
            return self._run_loop(task)
        waiting = asyncio.wait([task, opened], return_when=asyncio.FIRST_COMPLETED)
        self._run_loop(self._loop.create_task(waiting), of=task)
        if opened.done():
            # In the main thread, where signal handlers work.
            try:
                body_over.set_result(context.run(self._call))
            except BaseException as error:
                body_over.set_result(_Raised(error))
        return self._run_loop(task)

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

    def _run_loop(self, task: asyncio.Task[Any], of: asyncio.Task[Any] | None = None) -> Any:
        """Runs the event loop until the task is done. `terminate` cancels the task, or the one that
        it waits for."""
        self._task = task if of is None else of
        try:
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            if self._terminated is not None:
                raise self._terminated from None
            raise
        finally:
            self._task = None

    async def _open_and_close(
        self,
        function: Callable[..., Any],
        plan: Plan,
        opened: asyncio.Future[None],
        body_over: asyncio.Future[Any],
    ) -> Any:
        if self._child.wants_docket(function):
            await self._child.open_docket()
        execution = self._enter(function)
        async with AsyncExitStack() as stack:
            if not plan.is_plain:
                await resolve(self._resolved, stack, plan, execution, {})
            self._bind_behaviours()
            if _is_async(function):
                with ending_copies(self._child.pipe):
                    return await self._call_async(function, execution)
            opened.set_result(None)
            result: Any = await body_over
            if isinstance(result, _Raised):
                raise result.error
            return await self._await(result) if inspect.isawaitable(result) else result

    def _enter(self, function: Callable[..., Any]) -> Execution:
        """Sets the context variables of the run."""
        child = self._child
        execution = self._execution = self._make_execution(function)
        current_docket.set(child.docket)
        current_worker.set(child.worker)
        current_execution.set(execution)
        continue_trace(self._request.span)
        child.shared.enter_context()
        return execution

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
        execution.state, execution.worker = ExecutionState.RUNNING, self._child.worker.name
        execution.started_at = from_ms(request.started_ms)
        child = self._child
        execution.use_progress(
            ChildProgress(child.pipe, docket, child.open_docket, request.key, request.epoch, self.number)
        )
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
        self._child.pipe.send(MessageKind.EXTEND, self.number, by.total_seconds())

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
