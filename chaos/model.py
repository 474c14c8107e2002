"""The model of a run: requests, runs, faults and records, made from the histories."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from .faults import ROLLBACK_SECONDS, ROLLBACKS, Fault, Interruption, interruptions, read_faults
from .histories import Event

ACCEPTED, UNKNOWN = "scheduled", "unknown"

# A child has two seconds from SIGTERM to SIGKILL, and may outlive its worker by as much.
CHILD_SECONDS = 2.0

# Smaller epochs are not times. Histories written by hand have such.
LEAST_EPOCH = 10**12

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


@dataclass
class Request:
    """An `add`, a `replace`, a `cancel`, a strike or a pause or its end, and the answer, if there
    was one."""

    event: Event
    answer: Event | None = None

    @property
    def kind(self) -> str:
        return self.event.kind

    @property
    def how(self) -> str:
        """The answer to the request. A producer that died before the answer came does not know."""
        return self.answer["how"] if self.answer is not None else UNKNOWN

    @property
    def accepted(self) -> bool:
        return self.how in (ACCEPTED, "done")

    @property
    def may_count(self) -> bool:
        return self.accepted or self.how == UNKNOWN

    @property
    def answered_at(self) -> float:
        return self.answer.at if self.answer is not None else math.inf

    @property
    def answered_wall(self) -> float:
        return self.answer.wall if self.answer is not None else math.inf


@dataclass
class Run:
    """One run of a body, from its own words."""

    event: Event
    end: Event | None = None
    # When its process ended, if the body had not ended by then.
    died_at: float | None = None
    # Whether the body learned, at its end, that its run had been given up before.
    was_given_up: bool = False

    @property
    def key(self) -> str:
        return self.event["key"]

    @property
    def token(self) -> str:
        return self.event["token"]

    @property
    def function(self) -> str:
        return self.event["function"]

    @property
    def epoch(self) -> int:
        return self.event["epoch"]

    @property
    def attempt(self) -> int:
        return self.event["attempt"]

    @property
    def process(self) -> str:
        return self.event.process

    @property
    def runtime(self) -> str:
        """Where the body ran: `loop`, `thread` or `child`."""
        return self.event.get("runtime", "loop")

    @property
    def child(self) -> tuple[str, int] | None:
        """The child in which the body ran."""
        return (self.process, self.event["pid"]) if self.runtime == "child" else None

    @property
    def stop_seconds(self) -> float:
        """How long the body may go on after its worker has asked it to stop."""
        return {"thread": math.inf, "child": CHILD_SECONDS}.get(self.runtime, 0.0)

    @property
    def limit(self) -> float | None:
        """The seconds of its `Timeout`."""
        return self.event.get("limit")

    @property
    def step(self) -> Any:
        """The number of the run in its chain, or the time of a cron task."""
        return self.event.get("step")

    @property
    def at(self) -> float:
        return self.event.at

    @property
    def claimed_wall(self) -> float:
        """When the server gave it to its worker, by the server's clock,
        which is the machine's. The epoch has that time in microseconds;
        `claimed` is later if the answer was lost and repeated."""
        return min(self.event["claimed"], self.epoch / 1e6) if self.epoch > LEAST_EPOCH else self.event["claimed"]

    @property
    def claimed_at(self) -> float:
        """The time on the monotonic clock."""
        return self.event.at - (self.event.wall - self.claimed_wall)

    @property
    def how(self) -> str | None:
        return self.end["how"] if self.end is not None else None

    @property
    def until(self) -> float:
        if self.end is not None:
            return self.end.at
        return self.died_at if self.died_at is not None else math.inf

    @property
    def submission(self) -> tuple[Any, ...]:
        """Runs with the same value are runs of the same
        work: only a fault may explain the second."""
        return (self.key, self.token, self.step, self.attempt)


@dataclass
class Process:
    """The life of one process."""

    name: str
    started_at: float
    exited_at: float = math.inf
    code: int | None = None
    stopped_at: float | None = None
    events: list[Event] = field(default_factory=list[Event])


@dataclass(frozen=True)
class Child:
    """The life of one child, as it was seen from outside."""

    worker: str
    pid: int
    # The last time at which it was seen, and the time at which it was missed.
    alive_at: float
    gone_at: float


@dataclass
class Model:
    """Everything that the rules need. All lists are in the order of time."""

    events: Sequence[Event]
    requests: list[Request]
    runs: list[Run]
    faults: list[Fault]
    processes: dict[str, Process]
    records: dict[str, Event]
    children: dict[tuple[str, int], Child] = field(default_factory=dict[tuple[str, int], Child])

    @cached_property
    def by_kind(self) -> dict[str, list[Event]]:
        return _grouped(self.events, lambda event: event.kind)

    def of_kind(self, kind: str) -> list[Event]:
        return self.by_kind.get(kind, [])

    @cached_property
    def runs_by_key(self) -> dict[str, list[Run]]:
        """By epoch: the order in which the server gave them out."""
        ordered = sorted(self.runs, key=lambda run: run.epoch)
        return _grouped(ordered, lambda run: run.key)

    @cached_property
    def runs_by_submission(self) -> dict[tuple[Any, ...], list[Run]]:
        ordered = sorted(self.runs, key=lambda run: run.epoch)
        return _grouped(ordered, lambda run: run.submission)

    @cached_property
    def states_by_key(self) -> dict[str, list[Event]]:
        """The states that the server published, in its order."""
        return _grouped(self.of_kind("state"), lambda event: event["key"])

    @cached_property
    def scheduling(self) -> dict[str, list[Request]]:
        """The `add`s and `replace`s of each key."""
        wanted = [request for request in self.requests if request.kind in ("add", "replace")]
        return _grouped(wanted, lambda request: request.event["key"])

    @cached_property
    def cancels(self) -> dict[str, list[Request]]:
        return _grouped([r for r in self.requests if r.kind == "cancel"], lambda request: request.event["key"])

    @cached_property
    def _interruptions(self) -> dict[str, list[Interruption]]:
        return {name: interruptions(name, self.faults, self.events) for name in self.processes}

    def interruptions_of(self, process: str) -> list[Interruption]:
        """The events that may have taken its runs from this process."""
        return self._interruptions.get(process, [])

    def interruption(self, run: Run, until: float) -> Interruption | None:
        """The first that explains why the work of this run was given to another worker."""
        return next((i for i in self.interruptions_of(run.process) if i.explains(run.claimed_at, until)), None)

    def noticed_by(self, run: Run, restarted_at: float) -> float:
        """When the worker of a run that was given to another one must have cancelled it. The next
        interruption may come before the worker has noticed the last one."""
        noticed = restarted_at
        for interruption in self.interruptions_of(run.process):
            if interruption.explains(run.claimed_at, noticed):
                noticed = max(noticed, interruption.noticed_by)
        return noticed

    def may_be_forgotten(self, written_at: float, until: float) -> bool:
        """Whether the server may have lost, in that time, what it had just acknowledged."""
        return any(
            fault.kind in ROLLBACKS and fault.begin < until and fault.begin > written_at - ROLLBACK_SECONDS
            for fault in self.faults
        )

    def phase_at(self, phase: str) -> float:
        return next((event.at for event in self.of_kind("phase") if event["phase"] == phase), math.inf)

    def disturbances(self, process: str, begin: float, end: float) -> list[Fault]:
        """All faults that this process may have felt in that time, those of the server included."""
        return [f for f in self.faults if f.begin < end and f.end > begin and f.harms(process)]


def _grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return dict(found)


def read_model(events: Sequence[Event]) -> Model:
    """Makes the model from the events of all processes, in the order of time."""
    requests: dict[str, Request] = {}
    runs: dict[str, Run] = {}
    processes: dict[str, Process] = {}
    records: dict[str, Event] = {}
    children: dict[tuple[str, int], Child] = {}
    for event in events:
        match event.kind:
            case "add" | "replace" | "cancel" | "strike" | "restore" | "pause" | "resume" | "retry":
                requests[event["request"]] = Request(event)
            case "answer":
                requests[event["request"]].answer = event
            case "start":
                runs[event["run"]] = Run(event)
            case "end":
                runs[event["run"]].end = event
            case "given up":
                runs[event["run"]].was_given_up = True
            case "child gone" | "child left":
                gone_at = event.at if event.kind == "child gone" else math.inf
                child = Child(event["worker"], event["pid"], event["alive_at"], gone_at)
                children[child.worker, child.pid] = child
            case "started":
                processes[event["process"]] = Process(event["process"], event.at)
            case "exited":
                process = processes[event["process"]]
                process.exited_at, process.code = event.at, event["code"]
            case "stopped":
                processes[event["process"]].stopped_at = event.at
            case "record":
                records[event["key"]] = event
            case _:
                pass
        if event.process in processes:
            processes[event.process].events.append(event)
    for run in runs.values():
        if run.end is None:
            run.died_at = _died_at(run, processes, children)
    return Model(
        events, list(requests.values()), list(runs.values()), read_faults(events), processes, records, children
    )


def _died_at(run: Run, processes: Mapping[str, Process], children: Mapping[tuple[str, int], Child]) -> float | None:
    """When the process of a body ended: its child, or its worker."""
    child = children.get(run.child) if run.child is not None else None
    if child is not None:
        return child.gone_at
    worker = processes.get(run.process)
    return worker.exited_at if worker is not None and worker.exited_at < math.inf else None
