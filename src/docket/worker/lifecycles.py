"""The life cycles of dependency classes: context managers that stay open while a worker runs."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from docket.dependencies import plan_for

if TYPE_CHECKING:
    from .worker import Worker


def lifecycles(worker: Worker) -> list[AbstractAsyncContextManager[Any]]:
    """The life cycles of the dependency classes that the tasks and the worker use, each class once.
    A class may have none."""
    declared = [d for function in worker.docket.tasks.values() for d in plan_for(function).all()]
    classes = {type(d): None for d in [*declared, *worker.dependencies.values()]}
    methods = [getattr(cls, "worker_lifecycle", None) for cls in classes]
    opened = [method(worker.docket, worker) for method in methods if method is not None]
    return [lifecycle for lifecycle in opened if lifecycle is not None]
