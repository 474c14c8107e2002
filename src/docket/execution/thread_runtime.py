"""Runs plain functions in threads."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .run_context import current_worker
from .task_call import TaskFunction


class ThreadRuntime:
    """Runs functions that are not async in a thread of the worker, so that they do not block its
    event loop."""

    def accepts(self, function: Callable[..., Any]) -> bool:
        return True

    def bind(self, function: Callable[..., Any]) -> TaskFunction:
        async def in_thread(*args: Any, **kwargs: Any) -> Any:
            result = await current_worker.get().staff.threads.call(function, args, kwargs)
            # A wrapper may return the coroutine of the function inside it.
            return await result if inspect.isawaitable(result) else result

        return functools.update_wrapper(in_thread, function)
