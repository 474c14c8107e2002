"""What a trace shows of a task's life."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from docket import Docket, ExecutionState, Perpetual, Retry, TooLong, Worker
from tests.conftest import ForWhoeverListens
from tests.spans import context_of

tracer = trace.get_tracer("application")


async def test_the_first_run_its_retry_and_its_successor_have_traces_of_their_own_linked_to_the_request(
    spans: InMemorySpanExporter,
) -> None:
    async def refresh(
        retry: Retry = Retry(attempts=2), perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=5))
    ) -> None:
        if retry.attempt == 1 and runs.append(1) is None and len(runs) == 1:
            raise ConnectionError("the other side is busy")

    runs: list[int] = []
    async with Docket(name="traces", url=f"memory://{uuid4()}") as docket:
        with tracer.start_as_current_span("request") as request:
            await docket.add(refresh, when=datetime.now(UTC) + timedelta(milliseconds=30), key="r")()
        async with Worker(docket) as worker:
            await worker.run_at_most({"r": 3})
    finished = spans.get_finished_spans()
    (added,) = [s for s in finished if s.name == "docket.add"]
    consumed = [s for s in finished if s.name == "refresh"]
    assert added.parent is not None
    assert added.parent.span_id == request.get_span_context().span_id
    assert len(consumed) == 3
    for span in consumed:
        assert span.kind is SpanKind.CONSUMER
        assert span.parent is None
        assert [link.context.span_id for link in span.links] == [context_of(added).span_id]
    traces = {context_of(span).trace_id for span in consumed}
    assert len(traces) == 3
    assert request.get_span_context().trace_id not in traces
    assert [span.status.status_code for span in consumed] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.UNSET]
    assert [span.attributes["docket.attempt"] for span in consumed if span.attributes] == [1, 2, 1]


async def test_a_span_tells_which_task_ran_where(spans: InMemorySpanExporter) -> None:
    async def work() -> None: ...

    async with Docket(name="orders", url=f"memory://{uuid4()}") as docket:
        await docket.add(work, key="k1")()
        async with Worker(docket, name="w1") as worker:
            await worker.run_until_finished()
    (span,) = [s for s in spans.get_finished_spans() if s.name == "work"]
    assert span.attributes is not None
    expected = {
        "docket.name": "orders",
        "docket.worker": "w1",
        "docket.task": "work",
        "docket.key": "k1",
        "docket.attempt": 1,
        "code.function.name": "work",
        "messaging.destination.name": "orders",
    }
    assert expected.items() <= dict(span.attributes).items()
    assert "docket.when" in span.attributes


@pytest.mark.parametrize("verb", ["cancel", "clear", "add_many", "replace", "replace_many"])
async def test_callers_see_their_calls(verb: str, spans: InMemorySpanExporter) -> None:
    async def work() -> None: ...

    async with Docket(name="calls", url=f"memory://{uuid4()}") as docket:
        match verb:
            case "cancel":
                await docket.cancel("nothing there")
            case "clear":
                await docket.clear()
            case "replace":
                await docket.replace(work, datetime.now(UTC), "k")()
            case _:
                await getattr(docket, verb)([docket.call(work, key="k")()])
    assert f"docket.{verb}" in [span.name for span in spans.get_finished_spans()]


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_error_that_has_no_text_fails_its_task_once_and_its_span(spans: InMemorySpanExporter) -> None:
    async def speechless() -> None:
        raise SpeechlessError

    async with Docket(name="traces", url=f"memory://{uuid4()}") as docket:
        execution = await docket.add(speechless)()
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        await execution.sync()
    assert execution.state is ExecutionState.FAILED
    (span,) = [s for s in spans.get_finished_spans() if s.name == "speechless"]
    assert span.status.status_code is StatusCode.ERROR
    assert "SpeechlessError" in str(span.status.description)


async def test_a_span_processor_that_fails_does_not_run_a_task_again(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []

    async def once() -> None:
        runs.append(1)

    def fail(self: object, span: ReadableSpan) -> None:
        if span.name == "once":
            raise RuntimeError("the collector is gone")

    async with Docket(name="traces", url=f"memory://{uuid4()}") as docket:
        execution = await docket.add(once)()
        monkeypatch.setattr(ForWhoeverListens, "on_end", fail)
        async with Worker(docket) as worker:
            await worker.run_at_most({execution.key: 3})
        await execution.sync()
    assert execution.state is ExecutionState.COMPLETED
    assert runs == [1]


async def test_a_cancelled_task_is_no_error(spans: InMemorySpanExporter) -> None:
    started = asyncio.Event()

    async def long() -> None:
        started.set()
        await asyncio.sleep(60)

    async with Docket(name="cancels", url=f"memory://{uuid4()}") as docket:
        await docket.add(long, key="k")()
        async with Worker(docket) as worker:
            working = asyncio.create_task(worker.run_until_finished())
            await started.wait()
            await docket.cancel("k")
            await working
    (span,) = [s for s in spans.get_finished_spans() if s.name == "long"]
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.usefixtures("spans")
async def test_the_largest_baggage_that_w3c_permits_is_stored(docket: Docket) -> None:
    async def work() -> None: ...

    with tracer.start_as_current_span("request"):
        token = attach(baggage.set_baggage("n0", "x" * 4_090, baggage.set_baggage("n1", "x" * 4_090)))
        try:
            execution = await docket.add(work)()
        finally:
            detach(token)

    assert execution.trace_context is not None
    assert len(execution.trace_context["baggage"]) > 8_180


@pytest.mark.usefixtures("spans")
async def test_a_trace_context_that_is_too_long_is_refused_and_nothing_is_stored(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None: ...

    # A propagator of the application's own has no limit.
    monkeypatch.setattr(propagate, "inject", lambda carrier: carrier.update(note="x" * 20_000))
    with tracer.start_as_current_span("request"):
        with pytest.raises(TooLong, match="the trace context has 20,004 bytes"):
            await docket.add(work)()
        with pytest.raises(TooLong, match="the trace context has 20,004 bytes"):
            await docket.add_many([docket.call(work)()])

    assert (await docket.snapshot()).total_tasks == 0
