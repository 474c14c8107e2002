"""Spans and measurements through a real OpenTelemetry SDK."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, cast

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from docket import ConcurrencyLimit, Docket, Execution, ExecutionState, Perpetual, Retry, Timeout, Worker
from docket.dependencies import CompletionHandler, TaskOutcome
from tests.running import run_everything, running, worker_for
from tests.spans import context_of
from tests.times import later, now, soon
from tests.waiting import ends, eventually, reaches, within

READER: list[InMemoryMetricReader] = []


class Meters:
    """What was measured for one docket. A process has
    one meter provider for ever, so it is shared."""

    def __init__(self, docket: str) -> None:
        self.docket = docket

    def points(self, name: str) -> list[Any]:
        data = READER[0].get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data is not None else [])
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
            if (point.attributes or {}).get("docket.name") == self.docket
        ]

    def total(self, name: str) -> float:
        return sum(point.value for point in self.points(name))

    def measured(self, name: str) -> int:
        return sum(point.count for point in self.points(name))


@pytest.fixture
def meters(name: str) -> Meters:
    if not READER:
        READER.append(InMemoryMetricReader())
        metrics.set_meter_provider(MeterProvider(metric_readers=READER))
    return Meters(name)


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def only(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = named(spans, name)
    return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def serve(customer: str = "ada") -> None: ...


# Spans


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("add", lambda docket: docket.add(serve, key="k")()),
        ("replace", lambda docket: docket.replace(serve, later(), "k")()),
        ("schedule", lambda docket: docket.schedule(Execution(docket, serve, (), {}, "k", later()))),
        ("cancel", lambda docket: docket.cancel("k")),
        ("strike", lambda docket: docket.strike("serve")),
        ("restore", lambda docket: docket.restore("serve")),
        ("clear", lambda docket: docket.clear()),
        ("add_many", lambda docket: docket.add_many([docket.call(serve)()])),
        ("replace_many", lambda docket: docket.replace_many([docket.call(serve)()])),
    ],
)
async def test_each_call_has_a_span_within_the_callers(
    docket: Docket, spans: InMemorySpanExporter, verb: str, call: Callable[[Docket], Any]
) -> None:
    with trace.get_tracer("test").start_as_current_span("the caller") as caller:
        await call(docket)

    span = only(spans, f"docket.{verb}")
    assert span.parent is not None
    assert span.parent.span_id == caller.get_span_context().span_id
    assert attributes(span)["docket.name"] == docket.name


async def test_the_span_of_an_addition_says_what_was_added(docket: Docket, spans: InMemorySpanExporter) -> None:
    await docket.add(serve, key="k")()

    said = attributes(only(spans, "docket.add"))
    assert said["docket.task"] == "serve"
    assert said["docket.key"] == "k"
    assert said["docket.attempt"] == 1
    assert said["code.function.name"] == "serve"
    assert "docket.when" in said


@pytest.mark.parametrize(
    ("verb", "call"),
    [
        ("add", lambda docket: docket.add(serve, key="k")()),
        ("schedule", lambda docket: docket.schedule(Execution(docket, serve, (), {}, "k", later()))),
        ("replace", lambda docket: docket.replace(serve, later(), "k")()),
    ],
)
async def test_the_span_of_a_single_task_says_what_became_of_it(
    docket: Docket, spans: InMemorySpanExporter, verb: str, call: Callable[[Docket], Any]
) -> None:
    await call(docket)
    await call(docket)
    await docket.strike("serve")
    await call(docket)

    second = "scheduled" if verb == "replace" else "already_scheduled"
    said = [attributes(span)["docket.disposition"] for span in named(spans, f"docket.{verb}")]
    assert said == ["scheduled", second, "struck"]


@pytest.mark.parametrize("verb", ["add_many", "replace_many"])
async def test_the_span_of_a_batch_says_how_many_and_how_many_were_struck(
    docket: Docket, spans: InMemorySpanExporter, verb: str
) -> None:
    await docket.strike("serve", "customer", "==", "ada")

    await getattr(docket, verb)(docket.call(serve)(customer) for customer in ("ada", "ben", "ada"))

    said = attributes(only(spans, f"docket.{verb}"))
    assert (said["docket.batch.count"], said["docket.batch.stricken"]) == (3, 2)


async def test_a_run_has_a_consumer_span_named_after_its_function(docket: Docket, spans: InMemorySpanExporter) -> None:
    await docket.add(serve, key="k")()
    await run_everything(docket, name="w")

    span = only(spans, "serve")
    assert span.kind == SpanKind.CONSUMER
    said = attributes(span)
    assert said["docket.name"] == docket.name
    assert said["docket.worker"] == "w"
    assert said["docket.task"] == "serve"
    assert said["docket.key"] == "k"
    assert said["docket.attempt"] == 1
    assert said["code.function.name"] == "serve"
    assert "docket.when" in said
    assert span.status.status_code != StatusCode.ERROR


def is_linked(run: ReadableSpan, caller: ReadableSpan) -> bool:
    return any(link.context.span_id == context_of(caller).span_id for link in run.links)


@pytest.mark.parametrize("verb", ["add", "replace"])
@pytest.mark.parametrize("delay", [0, 40])
async def test_a_run_is_linked_to_the_span_of_its_caller(
    docket: Docket, spans: InMemorySpanExporter, verb: str, delay: int
) -> None:
    if verb == "add":
        await docket.add(serve, when=soon(delay), key="k")()
    else:
        await docket.replace(serve, when=soon(delay), key="k")()
    await run_everything(docket)

    assert is_linked(only(spans, "serve"), only(spans, f"docket.{verb}"))


@pytest.mark.parametrize("verb", ["add_many", "replace_many"])
async def test_the_runs_of_a_batch_are_linked_to_its_span(
    docket: Docket, spans: InMemorySpanExporter, verb: str
) -> None:
    await getattr(docket, verb)([docket.call(serve)(), docket.call(serve)()])
    await run_everything(docket)

    batch = only(spans, f"docket.{verb}")
    runs = named(spans, "serve")
    assert len(runs) == 2
    assert all(is_linked(run, batch) for run in runs)


async def test_each_run_of_a_perpetual_task_begins_a_trace_of_its_own(
    docket: Docket, spans: InMemorySpanExporter
) -> None:
    async def tick(perpetual: Perpetual = Perpetual()) -> None: ...

    with trace.get_tracer("test").start_as_current_span("the caller") as caller:
        await docket.add(tick, key="k")()
    async with worker_for(docket) as worker:
        await ends(worker.run_at_most({"k": 4}))

    runs = named(spans, "tick")
    traces = {context_of(run).trace_id for run in runs}
    assert len(runs) == len(traces) == 4
    assert caller.get_span_context().trace_id not in traces
    assert all(run.parent is None and is_linked(run, only(spans, "docket.add")) for run in runs)


async def test_every_attempt_is_linked_to_the_caller(docket: Docket, spans: InMemorySpanExporter) -> None:
    async def burn(retry: Retry = Retry(attempts=3, delay=timedelta(milliseconds=10))) -> None:
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    runs = named(spans, "burn")
    assert [attributes(run)["docket.attempt"] for run in runs] == [1, 2, 3]
    assert all(is_linked(run, only(spans, "docket.add")) for run in runs)


async def test_a_failed_run_is_an_error_with_its_exception(docket: Docket, spans: InMemorySpanExporter) -> None:
    async def burn() -> None:
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    span = only(spans, "burn")
    assert span.status.status_code == StatusCode.ERROR
    assert "smoke" in str([dict(event.attributes or {}) for event in span.events]) + str(span.status.description)


async def test_a_blocked_task_is_no_error(docket: Docket, spans: InMemorySpanExporter) -> None:
    async def work(customer: Annotated[str, ConcurrencyLimit(1)]) -> None:
        await asyncio.sleep(0.03)

    for _ in range(4):
        await docket.add(work)("a")
    await run_everything(docket)

    assert len(named(spans, "work")) >= 4
    assert all(span.status.status_code != StatusCode.ERROR for span in named(spans, "work"))


async def test_the_bodys_own_spans_are_within_the_runs(docket: Docket, spans: InMemorySpanExporter) -> None:
    async def work() -> None:
        with trace.get_tracer("test").start_as_current_span("inside"):
            pass

    await docket.add(work)()
    await run_everything(docket)

    inside = only(spans, "inside")
    assert inside.parent is not None
    assert inside.parent.span_id == context_of(only(spans, "work")).span_id


async def test_what_goes_on_with_the_server_is_not_traced(docket: Docket, spans: InMemorySpanExporter) -> None:
    await docket.add(serve, when=soon(50))()
    await run_everything(docket)

    assert {span.name for span in spans.get_finished_spans()} <= {"docket.add", "serve"}


# Counters


async def test_additions_and_replacements_are_counted(docket: Docket, meters: Meters) -> None:
    await docket.add(serve, key="a", when=later())()
    await docket.add(serve, key="a", when=later())()
    await docket.add(serve, key="b")()
    await docket.replace(serve, later(), "a")()

    assert meters.total("docket_tasks_added") == 3
    assert meters.total("docket_tasks_replaced") == 1
    assert meters.total("docket_tasks_scheduled") == 3


async def test_the_difference_of_added_and_scheduled_is_the_duplicates(docket: Docket, meters: Meters) -> None:
    await docket.strike("struck")
    docket.register(serve, names=["struck"])

    await docket.add_many([docket.call(serve, key="same", when=later())() for _ in range(3)])
    await docket.add_many([docket.call("struck")(), docket.call(serve)("ben")])
    await docket.add_many([docket.call(serve)(cast(Any, (n for n in range(2))))])

    assert meters.total("docket_tasks_added") == 4
    assert meters.total("docket_tasks_scheduled") == 2


async def test_a_batch_is_counted_by_its_tasks(docket: Docket, meters: Meters) -> None:
    await docket.add_many(docket.call(serve)() for _ in range(5))

    assert meters.total("docket_tasks_added") == 5
    assert meters.total("docket_tasks_scheduled") == 5


async def test_a_success_is_counted(docket: Docket, meters: Meters) -> None:
    await docket.add(serve)()
    await run_everything(docket)

    assert meters.total("docket_tasks_started") == 1
    assert meters.total("docket_tasks_completed") == 1
    assert meters.total("docket_tasks_succeeded") == 1
    assert meters.total("docket_tasks_failed") == 0
    assert meters.total("docket_tasks_running") == 0


async def test_a_failure_and_its_retries_are_counted(docket: Docket, meters: Meters) -> None:
    async def burn(retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError("smoke")

    await docket.add(burn)()
    await run_everything(docket)

    assert meters.total("docket_tasks_started") == 3
    assert meters.total("docket_tasks_retried") == 2
    assert meters.total("docket_tasks_succeeded") == 0
    assert meters.total("docket_tasks_failed") >= 1


async def test_the_runs_of_a_perpetual_task_are_counted(docket: Docket, meters: Meters) -> None:
    runs: list[int] = []

    async def tick(perpetual: Perpetual = Perpetual()) -> None:
        runs.append(1)
        if len(runs) == 3:
            perpetual.cancel()

    await docket.add(tick)()
    await run_everything(docket)

    assert meters.total("docket_tasks_perpetuated") == 2
    assert meters.total("docket_tasks_started") == 3


async def test_a_cancellation_is_counted(docket: Docket, meters: Meters) -> None:
    await docket.add(serve, when=later(), key="k")()
    await docket.cancel("k")

    assert meters.total("docket_tasks_cancelled") == 1


async def test_the_cancellation_of_a_running_task_is_counted(docket: Docket, worker: Worker, meters: Meters) -> None:
    started = asyncio.Event()

    async def hold() -> None:
        started.set()
        await asyncio.sleep(30)

    execution = await docket.add(hold, key="k")()
    async with running(worker):
        await within(started.wait())
        await docket.cancel("k")
        await reaches(execution, ExecutionState.CANCELLED)

    assert meters.total("docket_tasks_cancelled") == 1


async def test_struck_tasks_and_strikes_are_counted(docket: Docket, meters: Meters) -> None:
    await docket.add(serve)()
    await docket.strike("serve")
    await docket.add(serve)()
    await run_everything(docket)

    assert meters.total("docket_tasks_stricken") == 2

    await eventually(lambda: meters.total("docket_strikes_in_effect") == 1, "the strike is counted")
    await docket.restore("serve")

    async def is_over() -> bool:
        return meters.total("docket_strikes_in_effect") == 0

    await eventually(is_over, "the strike is no longer counted")


async def test_a_superseded_run_is_counted(docket: Docket, worker: Worker, meters: Meters) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await finish.wait()

    await docket.add(hold, key="k")()
    run = asyncio.create_task(ends(worker.run_until_finished()))
    await within(started.wait())
    await docket.replace(serve, now(), "k")()
    finish.set()
    await run

    (of_the_worker,) = [
        point for point in meters.points("docket_tasks_superseded") if point.attributes.get("docket.where") == "worker"
    ]
    assert of_the_worker.value == 1
    assert of_the_worker.attributes["docket.task"] == "hold"


async def test_a_redelivery_is_counted(docket: Docket, meters: Meters) -> None:
    endings: list[int] = []

    class Stubborn(CompletionHandler["Stubborn"]):
        async def __aenter__(self) -> "Stubborn":
            return self

        async def on_complete(self, execution: Execution, outcome: TaskOutcome) -> bool:
            endings.append(1)
            if len(endings) == 1:
                raise ConnectionError("not now")
            return False

    async def work(handler: Stubborn = Stubborn()) -> None: ...

    await docket.add(work)()
    async with worker_for(docket, redelivery_timeout=timedelta(milliseconds=200)) as worker, running(worker):
        await eventually(lambda: len(endings) == 2, "the task has ended twice")

    assert meters.total("docket_tasks_redelivered") == 1


async def test_running_tasks_are_counted_up_and_down(docket: Docket, worker: Worker, meters: Meters) -> None:
    started, finish = asyncio.Event(), asyncio.Event()

    async def hold(timeout: Timeout = Timeout(timedelta(seconds=30))) -> None:
        started.set()
        await finish.wait()

    execution = await docket.add(hold)()
    async with running(worker):
        await within(started.wait())
        assert meters.total("docket_tasks_running") == 1
        finish.set()
        await reaches(execution, ExecutionState.COMPLETED)

    assert meters.total("docket_tasks_running") == 0


async def test_duration_and_punctuality_are_measured(docket: Docket, meters: Meters) -> None:
    async def work() -> None:
        await asyncio.sleep(0.05)

    await docket.add(work)()
    await docket.add(work)()
    await run_everything(docket)

    assert meters.measured("docket_task_duration") == 2
    assert meters.measured("docket_task_punctuality") == 2
    assert 0.09 < sum(point.sum for point in meters.points("docket_task_duration")) < 5


async def test_the_depths_of_queue_and_schedule_are_measured(docket: Docket, worker: Worker, meters: Meters) -> None:
    for _ in range(3):
        await docket.add(serve, when=later())()
    async with running(worker):

        async def is_measured() -> bool:
            depths = [point.value for point in meters.points("docket_schedule_depth")]
            return 3 in depths and bool(meters.points("docket_queue_depth"))

        await eventually(is_measured, "the depths are measured")


async def test_the_size_of_the_caches_is_measured(docket: Docket, worker: Worker, meters: Meters) -> None:
    async with running(worker):
        await docket.add(serve)()

        async def is_measured() -> bool:
            data = READER[0].get_metrics_data()
            return data is not None and any(
                metric.name == "docket_cache_size"
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            )

        await eventually(is_measured, "the size of the cache is measured")


async def test_measurements_name_docket_worker_and_task(docket: Docket, meters: Meters) -> None:
    await docket.add(serve)()
    await run_everything(docket, name="w")

    (point,) = meters.points("docket_tasks_succeeded")
    assert point.attributes["docket.worker"] == "w"
    assert point.attributes["docket.task"] == "serve"
    assert "docket.key" not in point.attributes
