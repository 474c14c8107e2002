"""Metrics, spans, health and the endpoint of metrics (rows F)."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import urllib.error
import urllib.request
from datetime import timedelta
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from compat.probe.place import Place, eventually, later, now, run_all, running
from docket import ConcurrencyLimit, Perpetual, Retry, Worker

_READER = InMemoryMetricReader()
_SPANS = InMemorySpanExporter()


def _listen() -> None:
    """A process has one provider of each kind for ever."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(_SPANS))
        trace.set_tracer_provider(provider)
        metrics.set_meter_provider(MeterProvider(metric_readers=[_READER]))
    _SPANS.clear()


def _counted(name: str) -> dict[str, Any]:
    """The sums of this docket, by instrument; for histograms, how many values."""
    found: dict[str, Any] = {}
    data = _READER.get_metrics_data()
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if name in (point.attributes or {}).values():
                        amount = point.count if hasattr(point, "count") else point.value
                        found[metric.name] = found.get(metric.name, 0) + amount
    return found


def _labels(name: str, metric_name: str) -> list[Any]:
    found: list[Any] = []
    data = _READER.get_metrics_data()
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if metric.name == metric_name and name in (point.attributes or {}).values():
                        found.append(sorted(point.attributes or {}))
    return sorted(found)


async def _good(number: int = 0) -> None: ...


async def _bad() -> None:
    raise ValueError("no")


async def counters(place: Place) -> dict[str, Any]:
    """F1, F3: what a handful of tasks counts as."""
    _listen()
    async with place.docket() as docket:
        docket.register(_good)
        docket.register(_bad)
        await docket.add(_good, key="one", when=later())()
        await docket.add(_good, key="one", when=later())()
        await docket.replace(_good, key="one", when=now())()
        await docket.add(_bad)()
        await docket.add_many([docket.call(_good, key=key)() for key in ("x", "y", "y")])
        await docket.add(_good, key="gone", when=later())()
        await docket.cancel("gone")
        await docket.strike(_bad)
        await docket.add(_bad)()
        await run_all(docket)
    found = _counted(place.name)
    names = [
        "added",
        "scheduled",
        "replaced",
        "cancelled",
        "stricken",
        "superseded",
        "started",
        "completed",
        "succeeded",
        "failed",
        "running",
    ]
    return {f"tasks_{name}": found.get(f"docket_tasks_{name}", 0) for name in names} | {
        name: found.get(f"docket_{name}", 0) for name in ("task_duration", "task_punctuality")
    }


async def counters_of_blocked_runs(place: Place) -> dict[str, Any]:
    """F3."""
    _listen()

    async def limited(limit: ConcurrencyLimit = ConcurrencyLimit(max_concurrent=1)) -> None:
        await asyncio.sleep(0.05)

    async with place.docket() as docket:
        docket.register(limited)
        for _ in range(3):
            await docket.add(limited)()
        await run_all(docket)
    found = _counted(place.name)
    return {
        "started_minus_completed": found.get("docket_tasks_started", 0) - found.get("docket_tasks_completed", 0),
        "running": found.get("docket_tasks_running", 0),
    }


async def counters_of_a_cancelled_run(place: Place) -> dict[str, Any]:
    """F3."""
    _listen()
    started = asyncio.Event()

    async def long() -> None:
        started.set()
        await asyncio.sleep(30)

    async with place.docket() as docket:
        docket.register(long)
        execution = await docket.add(long)()
        async with running(docket):
            await asyncio.wait_for(started.wait(), 10)
            await docket.cancel(execution.key)

            async def is_over() -> bool:
                await execution.sync()
                return execution.state.value == "cancelled"

            await eventually(is_over)
    found = _counted(place.name)
    return {
        name: found.get(f"docket_{name}", 0)
        for name in ("tasks_started", "tasks_completed", "tasks_cancelled", "task_duration", "tasks_failed")
    }


async def superseded(place: Place) -> dict[str, Any]:
    """F2."""
    _listen()
    started = asyncio.Event()

    async def task(number: int, retry: Retry = Retry(attempts=3)) -> None:
        started.set()
        await asyncio.sleep(0.3)
        if number == 1:
            raise ValueError("no")

    async with place.docket() as docket:
        docket.register(task)
        await docket.add(task, key="waiting", when=later())(0)
        await docket.replace(task, key="waiting", when=now())(2)
        waiting = _counted(place.name).get("docket_tasks_superseded", 0)
        await docket.add(task, key="runs")(1)
        async with running(docket):
            await asyncio.wait_for(started.wait(), 10)
            await docket.replace(task, key="runs", when=now())(3)
            await asyncio.sleep(1)
    where: set[str] = set()
    data = _READER.get_metrics_data()
    for resource in data.resource_metrics if data else []:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name == "docket_tasks_superseded":
                    for point in metric.data.data_points:
                        if place.name in (point.attributes or {}).values():
                            where.add(str((point.attributes or {}).get("docket.where")))
    return {"of_a_waiting_task": waiting, "where": sorted(where)}


async def labels_of_metrics(place: Place) -> dict[str, Any]:
    _listen()
    async with place.docket() as docket:
        docket.register(_good)
        await docket.add(_good)()
        await run_all(docket)
    return {
        name: _labels(place.name, f"docket_{name}")
        for name in ("tasks_added", "tasks_started", "tasks_succeeded", "task_duration", "tasks_running")
    }


async def spans_of_callers(place: Place) -> dict[str, Any]:
    """F4."""
    _listen()
    async with place.docket() as docket:
        docket.register(_good)
        await docket.add(_good, key="k", when=later())()
        await docket.add(_good, key="k", when=later())()
        await docket.replace(_good, key="k", when=later())()
        await docket.add_many([docket.call(_good, when=later())(n) for n in range(3)])
        await docket.replace_many([docket.call(_good, when=later())(n) for n in range(2)])
        await docket.cancel("k")
        await docket.strike(_good)
        await docket.restore(_good)
        await docket.clear()
    found = [span for span in _SPANS.get_finished_spans() if span.name.startswith("docket.")]
    seen: dict[str, Any] = {"names": sorted({span.name for span in found})}
    for span in found:
        attributes = dict(span.attributes or {})
        seen.setdefault(f"{span.name}.status", span.status.status_code.name)
        seen.setdefault(f"{span.name}.kind", span.kind.name)
        for name in ("docket.batch.count", "docket.batch.stricken"):
            if name in attributes:
                seen[f"{span.name}.{name}"] = attributes[name]
        if "docket.disposition" in attributes:
            seen.setdefault(f"{span.name}.dispositions", []).append(attributes["docket.disposition"])
        for name in attributes:
            seen[f"{span.name}.has.{name}"] = True
    return seen


async def spans_of_runs(place: Place) -> dict[str, Any]:
    """F5."""
    _listen()
    tracer = trace.get_tracer("probe")
    runs: list[int] = []

    async def chain(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=20))) -> None:
        runs.append(1)
        if len(runs) == 3:
            perpetual.cancel()

    async with place.docket() as docket:
        docket.register(chain)
        docket.register(_bad)
        with tracer.start_as_current_span("request") as request:
            await docket.add(chain, key="chain")()
            await docket.add(_bad, key="bad")()
        await run_all(docket)
    found = [span for span in _SPANS.get_finished_spans() if span.name in ("chain", "_bad")]
    mine = [span for span in found if span.name == "chain"]
    failed = next((span for span in found if span.name == "_bad"), None)
    return {
        "runs": len(mine),
        "traces_of_their_own": sum(span.context.trace_id != request.get_span_context().trace_id for span in mine),
        "linked": [bool(span.links) for span in mine],
        "kind": sorted({span.kind.name for span in mine}),
        "status": sorted({span.status.status_code.name for span in mine}),
        "status_of_a_failure": failed.status.status_code.name if failed else None,
        "attributes": sorted({name for span in mine for name in (span.attributes or {}) if "docket." in name}),
        "code": sorted({str((span.attributes or {}).get("code.function.name")) for span in mine}),
    }


async def ports(place: Place) -> dict[str, Any]:
    """The health check and the metrics of a worker."""
    health, prometheus = _free_port(), _free_port()
    run = asyncio.ensure_future(
        Worker.run(
            docket_name=place.name,
            url=place.url,
            healthcheck_port=health,
            metrics_port=prometheus,
            tasks=["docket.tasks:standard_tasks"],
        )
    )

    def fetch(port: int, path: str = "/") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""
        except OSError:
            return 0, ""

    async def answers() -> bool:
        return (await asyncio.to_thread(fetch, health))[0] == 200

    up = await eventually(answers)
    async with place.docket() as docket:
        execution = await docket.add("trace")("x")
        await execution.get_result()
        await asyncio.sleep(0.3)
    code, text = await asyncio.to_thread(fetch, prometheus, "/metrics")
    _, body = await asyncio.to_thread(fetch, health)
    run.cancel()
    with contextlib.suppress(BaseException):
        await asyncio.wait([run], timeout=10)
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    return {
        "healthy": up,
        "body": body,
        "metrics": code,
        "names": {name: True for name in names if name.startswith("docket")},
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
