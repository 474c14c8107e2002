"""The measurements. A session is what happens to one system between two flushes of the server."""

from __future__ import annotations

import os
import time

from bench.backlogs import with_backlog, with_largest_backlog
from bench.driving import (
    NotSupported,
    ProducerProcess,
    SessionFailed,
    WorkerProcesses,
    producing,
    wait_for_first_mark,
    wait_for_marks,
    working,
)
from bench.figures import median, percentile
from bench.measures import BLOCKING, COMPUTING, USUAL
from bench.sizes import Sizes
from bench.steps import SLACK_SECONDS, Bulk, Session, Setting, drain_some, enqueue_in_bulk, rate

# Ends what still goes on after the last body: settlements
# and acknowledgements belong to a task's cost.
SETTLE_SECONDS = 0.3
# Those that run functions which are not async.
PLAIN_SYSTEMS = ("docket", "taskiq", "celery", "dramatiq", "rq")
# Before functions that compute are measured.
WARM_SECONDS = 3.0
ENQUEUE_SECONDS = 10.0
IMPORT = "import time; began = time.process_time(); {}; print(time.process_time() - began)"


def sessions(sizes: Sizes) -> list[Session]:
    found = [_draining(sizes, concurrency) for concurrency in sizes.concurrencies]
    found.append(_at_defaults(sizes))
    found.append(Session("sleeping", ("efficiency",), sizes.sleepers, _sleep, slots=USUAL))
    found.append(_plain(sizes, "nothing", 10, "plain", sizes.drain_tasks, 0.0))
    found += [_blocking(sizes, count) for count in BLOCKING]
    found += [_computing(sizes, ms / 1000, f"computing_{ms}") for ms in COMPUTING]
    found.append(_responding(sizes))
    found.append(Session("idling", ("idle_commands", "idle_cpu"), 1, _idle, slots=10))
    found.append(Session("importing", ("import_cpu",), 1, _import))
    found += [_with_processes(sizes, count) for count in sizes.processes]
    found += [with_backlog(sizes, size, "waiting") for size in sizes.backlogs]
    found += [with_backlog(sizes, size, "later") for size in sizes.later_backlogs]
    if sizes.largest:
        found.append(with_largest_backlog(sizes))
    return found


# Enqueue and drain


def _draining(sizes: Sizes, concurrency: int) -> Session:
    costs = ("commands", "reads", "net", "worker_cpu", "server_cpu", "repeats")
    measures = (f"drain_{concurrency}", *(f"{cost}_{concurrency}" for cost in costs))
    first = concurrency == sizes.concurrencies[0]

    def run(setting: Setting) -> None:
        _enqueue_and_drain(setting, concurrency, one_by_one=first)

    if first:
        measures = ("enqueue_one", "enqueue_bulk", "bytes", *measures)
    return Session(
        f"draining at {concurrency:,}", measures, sizes.one_by_one + sizes.drain_tasks, run, slots=concurrency
    )


def _enqueue_and_drain(setting: Setting, concurrency: int, *, one_by_one: bool) -> None:
    empty = setting.server.read()
    with producing(setting.stage) as producer:
        first = _enqueue_one_by_one(setting, producer) if one_by_one else 0
        bulk = enqueue_in_bulk(setting, producer, first, setting.sizes.drain_tasks)
    if one_by_one:
        setting.record.add("enqueue_bulk", bulk.count / bulk.seconds)
        setting.server.wait_until_alone()
        used = setting.server.read().since(empty)
        setting.record.add("bytes", used.memory_bytes / (first + bulk.count))
    with working(setting.stage, concurrency) as workers:
        _drain(setting, workers, first + bulk.count, bulk, concurrency)


def _enqueue_one_by_one(setting: Setting, producer: ProducerProcess) -> int:
    sizes = setting.sizes
    limit = sizes.one_by_one_seconds + SLACK_SECONDS
    done = producer.order("one_by_one", limit, first=0, count=sizes.one_by_one, seconds=sizes.one_by_one_seconds)
    setting.record.add("enqueue_one", done["count"] / done["seconds"])
    return done["count"]


def _drain(setting: Setting, workers: WorkerProcesses, count: int, bulk: Bulk, concurrency: int) -> None:
    """A slow system is stopped before it is done; its costs are those of the tasks that it ran."""
    marks, sizes, record = setting.stage.marks, setting.sizes, setting.record
    wait_for_first_mark(marks, 0, count, sizes.start_seconds, workers)
    begun, cpu, before = marks.done(0, count), workers.cpu_seconds(), setting.server.read()
    done = wait_for_marks(marks, 0, count, sizes.drain_seconds, workers)
    began, ended = marks.span(0, count)
    record.add(f"drain_{concurrency}", rate(done, began, ended))
    if done == count:
        time.sleep(SETTLE_SECONDS)
    used, cpu = setting.server.read().since(before), workers.cpu_seconds() - cpu
    tasks = max(marks.done(0, count) - begun, 1)

    def add(cost: str, draining: float, enqueuing: float = 0.0) -> None:
        record.add(f"{cost}_{concurrency}", draining / tasks + enqueuing / bulk.count)

    add("commands", used.commands, bulk.used.commands)
    add("reads", used.reads, bulk.used.reads)
    add("net", used.bytes_in + used.bytes_out, bulk.used.bytes_in + bulk.used.bytes_out)
    add("worker_cpu", cpu * 1000)
    add("server_cpu", used.cpu_seconds * 1000, bulk.used.cpu_seconds * 1000)
    record.add(f"repeats_{concurrency}", marks.repeated(0, count))


def _at_defaults(sizes: Sizes) -> Session:
    """A drain with the log that the system's command writes unless told otherwise."""
    measure = f"defaults_{USUAL}"

    def run(setting: Setting) -> None:
        with producing(setting.stage) as producer:
            count = enqueue_in_bulk(setting, producer, 0, sizes.drain_tasks).count
        with working(setting.stage, USUAL, default_log=True) as workers:
            setting.record.add(measure, drain_some(setting, workers, count, count))

    return Session(f"draining at {USUAL} with the default log", (measure,), sizes.drain_tasks, run, slots=USUAL)


# Tasks that wait


def _sleep(setting: Setting) -> None:
    sizes, marks = setting.sizes, setting.stage.marks
    ideal = sizes.sleepers / USUAL * sizes.sleep
    with producing(setting.stage) as producer:
        producer.order("sleepers", 2 * SLACK_SECONDS, first=0, count=sizes.sleepers, sleep=sizes.sleep)
    with working(setting.stage, USUAL) as workers:
        wait_for_first_mark(marks, 0, sizes.sleepers, sizes.start_seconds, workers)
        done = wait_for_marks(marks, 0, sizes.sleepers, 4 * ideal, workers)
    began, ended = marks.span(0, sizes.sleepers)
    # A slow system is stopped early; what it did until then shows its efficiency as well.
    ideal_so_far = done / USUAL * sizes.sleep
    setting.record.add("efficiency", ideal_so_far / ((ended - began) / 1e9))


# Plain functions, in threads and in processes


def _blocking(sizes: Sizes, slots: int) -> Session:
    count = min(sizes.sleepers, int(slots * sizes.drain_seconds / sizes.sleep))
    return _plain(sizes, "block", slots, f"blocking_{slots}", count, sizes.sleep)


def _computing(sizes: Sizes, seconds: float, measure: str) -> Session:
    """Measured when all processes have had time to start, which takes some systems longer. Their
    CPU time tells more than the rate if the machine has other work."""
    slots = os.cpu_count() or 1
    count = int(slots * (WARM_SECONDS + sizes.drain_seconds) / seconds)
    cpu = f"{measure}_cpu"

    def run(setting: Setting) -> None:
        marks = setting.stage.marks
        with producing(setting.stage) as producer:
            order = {"first": 0, "count": count, "seconds": ENQUEUE_SECONDS, "kind": "compute", "each": seconds}
            tasks = producer.order("plain", ENQUEUE_SECONDS + SLACK_SECONDS, **order)["count"]
        with working(setting.stage, slots, computing=True) as workers:
            wait_for_first_mark(marks, 0, tasks, sizes.start_seconds, workers)
            wait_for_marks(marks, 0, tasks // 2, WARM_SECONDS, workers)
            since, used, done = time.monotonic_ns(), workers.cpu_seconds(), marks.done(0, tasks)
            wait_for_marks(marks, 0, tasks, sizes.drain_seconds, workers)
            used, done = workers.cpu_seconds() - used, marks.done(0, tasks) - done
        setting.record.add(measure, marks.rate_since(0, tasks, since))
        if done:
            setting.record.add(cpu, used / done * 1000)

    return Session(f"plain functions, {measure}", (measure, cpu), count, run, slots=slots, systems=PLAIN_SYSTEMS)


def _plain(sizes: Sizes, kind: str, slots: int, measure: str, count: int, each: float) -> Session:
    def run(setting: Setting) -> None:
        limit = sizes.enqueue_seconds
        with producing(setting.stage) as producer:
            order = {"first": 0, "count": count, "seconds": limit, "kind": kind, "each": each}
            tasks = producer.order("plain", limit + SLACK_SECONDS, **order)["count"]
        with working(setting.stage, slots) as workers:
            found = drain_some(setting, workers, tasks, tasks)
        if kind == "block":
            found *= each / slots
        setting.record.add(measure, found)

    return Session(f"plain functions, {measure}", (measure,), count, run, slots=slots, systems=PLAIN_SYSTEMS)


# An idle worker that is given one task at a time


def _responding(sizes: Sizes) -> Session:
    measures = ("latency_p50", "latency_p99", "result_p50", "result_p99", "late_p50", "late_p99")
    room = 1 + 2 * sizes.latencies + sizes.scheduled
    return Session("responding", measures, room, _respond, slots=10)


def _respond(setting: Setting) -> None:
    with working(setting.stage, 10, results=True), producing(setting.stage, results=True) as producer:
        _probe(setting, producer)
        _respond_to_one_at_a_time(setting, producer, "latencies", "latency", 1)
        _respond_to_one_at_a_time(setting, producer, "round_trips", "result", 1 + setting.sizes.latencies)
        _respond_when_due(setting, producer)


def _probe(setting: Setting, producer: ProducerProcess) -> None:
    """Waits until a task was run: the worker is up."""
    start_seconds = setting.sizes.start_seconds
    producer.order("probe", 2 * start_seconds, number=0, seconds=start_seconds)


def _respond_to_one_at_a_time(
    setting: Setting, producer: ProducerProcess, order: str, measure: str, first: int
) -> None:
    sizes = setting.sizes
    patience = 10.0
    with setting.record.attempt(f"{measure}_p50", f"{measure}_p99"):
        limits = {"count": sizes.latencies, "seconds": sizes.latency_seconds, "patience": patience}
        done = producer.order(order, sizes.latency_seconds + 2 * patience, first=first, **limits)
        setting.record.add(f"{measure}_p50", percentile(done["each_ms"], 0.5))
        setting.record.add(f"{measure}_p99", percentile(done["each_ms"], 0.99))


def _respond_when_due(setting: Setting, producer: ProducerProcess) -> None:
    sizes = setting.sizes
    with setting.record.attempt("late_p50", "late_p99"):
        done = producer.order(
            "scheduled",
            sizes.scheduled_delay + sizes.scheduled_window + sizes.scheduled_patience + SLACK_SECONDS,
            first=1 + 2 * sizes.latencies,
            count=sizes.scheduled,
            delay=sizes.scheduled_delay,
            window=sizes.scheduled_window,
            patience=sizes.scheduled_patience,
        )
        if done["missing"] > sizes.scheduled // 2:
            raise SessionFailed(f"most had not run {sizes.scheduled_patience:g} s after the last was due")
        setting.record.add("late_p50", percentile(done["each_ms"], 0.5))
        setting.record.add("late_p99", percentile(done["each_ms"], 0.99))


# A worker with nothing to do


def _idle(setting: Setting) -> None:
    with working(setting.stage, 10) as workers:
        with producing(setting.stage) as producer:
            _probe(setting, producer)
        time.sleep(SETTLE_SECONDS)
        workers.check()
        cpu, before, began = workers.cpu_seconds(), setting.server.read(), time.monotonic()
        time.sleep(setting.sizes.idle_seconds)
        used, passed = setting.server.read().since(before), time.monotonic() - began
        setting.record.add("idle_commands", used.commands / passed)
        setting.record.add("idle_cpu", (workers.cpu_seconds() - cpu) / passed * 100)


# The import


def _import(setting: Setting) -> None:
    if setting.system.imports is None:
        raise NotSupported("nothing to import")
    code = IMPORT.format(setting.system.imports)
    # The first run may compile and is not counted.
    runs = [setting.stage.run_code(code) for _ in range(setting.sizes.imports + 1)]
    if any(run.returncode for run in runs):
        raise SessionFailed(runs[-1].stderr.strip().rpartition("\n")[2])
    setting.record.add("import_cpu", median([float(run.stdout) for run in runs[1:]]))


# More processes


def _with_processes(sizes: Sizes, processes: int) -> Session:
    measure = f"processes_{processes}"

    def run(setting: Setting) -> None:
        with producing(setting.stage) as producer:
            count = enqueue_in_bulk(setting, producer, 0, sizes.process_tasks).count
        with working(setting.stage, USUAL, processes=processes) as workers:
            drain_some(setting, workers, count, count)
        setting.record.add(measure, setting.stage.marks.later_half_rate(0, count))

    return Session(f"{processes} processes", (measure,), sizes.process_tasks, run, slots=USUAL, once=True)
