"""Fixtures shared by every test."""

import signal
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

# A script's background jobs ignore SIGINT, and what they start inherits that: no test could be interrupted by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ForWhoeverListens(SpanProcessor):
    """A provider's processors cannot be taken off again; this one stays, and passes on while a test listens."""

    def __init__(self) -> None:
        self.listener: SpanProcessor | None = None

    def on_end(self, span: ReadableSpan) -> None:
        if self.listener is not None:
            self.listener.on_end(span)


PROCESSOR = ForWhoeverListens()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Every span that ends during the test. A process has one tracer provider for ever, so all its tests share it."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(PROCESSOR)
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    PROCESSOR.listener = SimpleSpanProcessor(exporter)
    yield exporter
    PROCESSOR.listener = None
