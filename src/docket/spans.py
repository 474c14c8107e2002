"""The spans of a caller's requests."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from docket.execution import Disposition, Execution
from docket.instrumentation import caller_span, is_tracing

if TYPE_CHECKING:
    from docket.docket import Docket


class Labelled(Protocol):
    """Anything with the labels of a docket."""

    def labels(self) -> dict[str, str]: ...


@contextlib.contextmanager
def request_span(docket: Labelled, verb: str, attributes: dict[str, str] | None = None) -> Generator[None]:
    """A span with the docket's labels, if tracing is configured."""
    if not is_tracing():
        yield
        return
    with caller_span(f"docket.{verb}", {**docket.labels(), **(attributes or {})}):
        yield


@contextlib.contextmanager
def task_span(docket: Docket, verb: str, execution: Execution) -> Generator[None]:
    """The span of a request to schedule one task. Its
    attribute `docket.disposition` has the result."""
    attributes: dict[str, Any] = {
        **docket.labels(),
        **execution.specific_labels(),
        "code.function.name": execution.function_name,
        "messaging.system": "docket",
        "messaging.destination.name": docket.name,
        "messaging.message.id": execution.key,
    }
    with caller_span(f"docket.{verb}", attributes) as span:
        yield
        span.set_attribute("docket.disposition", execution.disposition.value)


@contextlib.contextmanager
def batch_span(docket: Docket, verb: str, executions: Sequence[Execution]) -> Generator[None]:
    """The span of a batch. It records the number of tasks and of struck tasks when it ends."""
    if not is_tracing():
        yield
        return
    with caller_span(f"docket.{verb}", docket.labels()) as span:
        yield
        struck = sum(execution.disposition is Disposition.STRUCK for execution in executions)
        span.set_attributes({"docket.batch.count": len(executions), "docket.batch.stricken": struck})
