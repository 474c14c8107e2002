"""Spans and their context. They cost almost nothing if no SDK is configured."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, MutableMapping
from typing import Any, Protocol

from opentelemetry import context, propagate, trace
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from docket.model.bounds import check_trace

tracer: trace.Tracer = trace.get_tracer("docket")

Message = dict[bytes, bytes]
# Untyped, to read a private attribute.
_trace: Any = trace

# Instrumentations of clients respect this key. It
# keeps docket's own requests out of the user's traces.
_SUPPRESS = "suppress_instrumentation"


class MessageGetter(Getter[Message]):
    """Reads a trace context from a mapping of bytes."""

    def get(self, carrier: Message, key: str) -> list[str] | None:
        value = carrier.get(key.encode())
        return None if value is None else [value.decode()]

    def keys(self, carrier: Message) -> list[str]:
        return [key.decode() for key in carrier]


class MessageSetter(Setter[Message]):
    """Writes a trace context into a mapping of bytes."""

    def set(self, carrier: Message, key: str, value: str) -> None:
        carrier[key.encode()] = value.encode()


message_getter: MessageGetter = MessageGetter()
message_setter: MessageSetter = MessageSetter()


def is_tracing() -> bool:
    """Whether a tracer provider is configured."""
    # This is called for every task. The public function
    # reads the environment each time, which is too slow.
    try:
        return _trace._TRACER_PROVIDER is not None
    except AttributeError:
        return False


def inject_context() -> dict[str, str] | None:
    """The current trace context, to store it with a task, or None."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    carrier: MutableMapping[str, str] = {}
    propagate.inject(carrier)
    context_to_store = dict(carrier)
    check_trace(context_to_store)
    return context_to_store


@contextlib.contextmanager
def caller_span(name: str, attributes: Mapping[str, Any]) -> Generator[Span]:
    """A span around a caller's request to the docket."""
    kind = SpanKind.PRODUCER if name in ("docket.add", "docket.replace", "docket.schedule") else SpanKind.INTERNAL
    with tracer.start_as_current_span(name, kind=kind, attributes=dict(attributes)) as span:
        yield span


@contextlib.contextmanager
def run_span(name: str, stored: Mapping[str, str] | None, attributes: Mapping[str, Any]) -> Generator[Span]:
    """The consumer span of one run. It begins a new
    trace and links to the span that scheduled the task.

    If it were a child of that span, a perpetual task would extend one trace without end. The span
    does not record exceptions itself, because a task that is delayed or cancelled is not an error.
    """
    scheduled_in = propagate.extract(dict(stored), context.Context()) if stored else context.Context()
    caller = trace.get_current_span(scheduled_in).get_span_context()
    links = [Link(caller)] if caller.is_valid else []
    with tracer.start_as_current_span(
        name,
        context=context.Context(),
        kind=SpanKind.CONSUMER,
        attributes=dict(attributes),
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        yield span


def mark_failed(span: Span, error: BaseException) -> None:
    """Records the error. `str()` of a user's exception may fail."""
    with contextlib.suppress(Exception):
        span.record_exception(error)
    try:
        text = str(error)
    except Exception:
        text = "(no text)"
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {text}"[:500]))


def continue_trace(carrier: Mapping[str, str]) -> None:
    """Makes the span of another process the current one, for the rest of the current context."""
    if carrier:
        context.attach(propagate.extract(dict(carrier)))


def suppress_traces() -> None:
    """Keeps the rest of the current asyncio task out of the user's traces."""
    context.attach(context.set_value(_SUPPRESS, True))


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
