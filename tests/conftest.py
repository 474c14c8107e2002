"""Fixtures shared by every test."""

import signal
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from docket import Docket, Worker

from .running import worker_for

# A script's background jobs ignore SIGINT, and what they
# start inherits that: no test could be interrupted by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class ForWhoeverListens(SpanProcessor):
    """A provider's processors cannot be taken off again;
    this one stays, and passes on while a test listens."""

    def __init__(self) -> None:
        self.listener: SpanProcessor | None = None

    def on_end(self, span: ReadableSpan) -> None:
        if self.listener is not None:
            self.listener.on_end(span)


PROCESSOR = ForWhoeverListens()


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Every span that ends during the test. A process has one
    tracer provider for ever, so all its tests share it."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(PROCESSOR)
        trace.set_tracer_provider(provider)
    exporter = InMemorySpanExporter()
    PROCESSOR.listener = SimpleSpanProcessor(exporter)
    yield exporter
    PROCESSOR.listener = None


@pytest.fixture
def name() -> str:
    """A name that no other docket has."""
    return f"docket-{uuid4().hex}"


@pytest.fixture
def url(name: str) -> str:
    """A database of its own on the embedded server."""
    return f"memory://{name}"


@pytest.fixture
def docket_url(url: str) -> str:
    """The fixture of docket's pytest plugin, with the URL of the test's docket."""
    return url


@pytest.fixture
async def docket(name: str, url: str) -> AsyncIterator[Docket]:
    """An open docket with nothing on it."""
    async with Docket(name=name, url=url) as docket:
        yield docket


@pytest.fixture
async def worker(docket: Docket) -> AsyncIterator[Worker]:
    """An open worker on that docket, which looks at the
    schedule often. It does nothing before it is told to run."""
    async with worker_for(docket) as worker:
        yield worker
