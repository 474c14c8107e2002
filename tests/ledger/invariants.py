"""Everything one docket has on its server, read at one moment,
and the rules it must obey whatever happened before."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from docket.ledger import Ledger, read_failed_attempts
from docket.ledger.deliveries import entry_key
from docket.storage.keys import bytes_text, segment
from docket.storage.letters import LetterRecord
from docket.storage.records import FinishedRecord, TaskRecord, read_finished, read_task
from docket.storage.schema import keys as schema
from docket.storage.schema.locations import HELD, IN_FRONT, IN_STREAM, SCHEDULED, UNKNOWN_FUNCTION, WAITING_FOR_SLOT
from docket.storage.schema.records import ALONE, FROM_FRONT, HAS_PROGRESS, RETRIED, REVIVED, RUN, SUSPECT, SUSPECT_AFTER

from .stored_letters import read_letters

GROUP = schema.GROUP.encode()
# Among the leases, and no workers: when anybody
# renewed last, and until when nobody is declared dead.
MARKS = {b"\1renewed", b"\1grace"}
# Among the pauses, and no rules.
PAUSE_FIELDS = {b"arguments", b"round"}
# What stays when all work is done: what was, and what the next worker needs.
# What limits remember about times, and damaged data that was set aside; both end by themselves.
_WINDOWS = {
    b"rate",
    b"rate-waiters",
    b"cooldown",
    b"debounce",
    b"windows",
    b"delay",
    b"letter-batch",
    b"damaged",
    b"repeated",
}
# Counts of what has ended, and the history. test_statistics and test_history look at them.
_STATISTICS = {
    b"stats-minute",
    b"stats-hour",
    b"stats-open",
    b"stats-functions",
    b"history-failures",
    b"history-samples",
    b"stats-samples",
}
_STAYS = {
    "streams",
    "finished",
    "finished_ttl",
    "lost",
    "letters",
    "dead",
    "buried_chains",
    "payloads",
    "payload_data",
    "epoch",
    "others",
    "max_losses",
    "failed_attempts",
}


_TEXT_SIZE = struct.Struct("<H")


@dataclass
class Run:
    """A run record with all that scripts keep in it."""

    epoch: int
    entry: str
    flags: int
    worker: str
    limits: list[bytes]

    @classmethod
    def read(cls, data: bytes) -> Run:
        epoch, _, entry_ms, entry_seq, flags = RUN.struct.unpack_from(data)
        begin = RUN.size + _TEXT_SIZE.size
        end = begin + _TEXT_SIZE.unpack_from(data, RUN.size)[0]
        (limits_length,) = _TEXT_SIZE.unpack_from(data, end)
        limits = data[end + 2 : end + 2 + limits_length]
        worker = data[begin:end].decode()
        return cls(int(epoch), f"{entry_ms:.0f}-{entry_seq}", flags, worker, limits.split(b"\n") if limits else [])

    @property
    def stream(self) -> str:
        return "front" if self.flags & FROM_FRONT else "stream"


@dataclass
class StreamEntry:
    id: str
    key: str
    holder: str | None


@dataclass
class Stream:
    """A stream and its group: entries in order, each
    with the consumer it is pending with, if any."""

    entries: list[StreamEntry] = field(default_factory=list[StreamEntry])
    dangling: list[str] = field(default_factory=list[str])
    consumers: set[str] = field(default_factory=set[str])
    has_group: bool = False
    delivered_up_to: tuple[int, int] = (0, 0)

    def undelivered(self, id: str) -> bool:
        ms, _, seq = id.partition("-")
        return (int(ms), int(seq)) > self.delivered_up_to


@dataclass
class Suspects:
    """Groups of suspects (docs/design/key-layout.md)."""

    group_of: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    running: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    met: dict[str, str] = field(default_factory=dict[str, str])
    reserved: dict[str, str] = field(default_factory=dict[str, str])
    unwilling: set[str] = field(default_factory=set[str])
    lives: dict[str, int] = field(default_factory=dict[str, int])
    had_one_run: dict[str, bool] = field(default_factory=dict[str, bool])

    @classmethod
    def read(cls, fields: dict[bytes, bytes]) -> Suspects:
        suspects = cls()
        for name, value in fields.items():
            kind, rest = name[:1], bytes_text(name[1:])
            match kind:
                case b"t":
                    suspects.group_of[rest] = value.decode()
                case b"g":
                    size, _, live = value.decode().partition(" ")
                    suspects.sizes[rest] = int(size), int(live)
                case b"c":
                    group, _, worker = rest.partition(" ")
                    suspects.running[group, worker] = int(value)
                case b"m":
                    suspects.met[rest] = value.decode().partition(" ")[2]
                case b"r":
                    suspects.reserved[rest] = bytes_text(value)
                case b"b":
                    suspects.unwilling.add(rest)
                case b"l":
                    suspects.lives[rest] = int(value)
                case b"x":
                    suspects.had_one_run[rest] = value == b"1"
                case _:
                    raise AssertionError(f"suspects has a field {name!r}")
        return suspects

    def __bool__(self) -> bool:
        return any(vars(self).values())

    @property
    def groups(self) -> list[set[str]]:
        """The members of each group, however groups are called."""
        members: dict[str, set[str]] = {}
        for key, group in self.group_of.items():
            members.setdefault(group, set()).add(key)
        return sorted(members.values(), key=sorted)


@dataclass
class StoredState:
    tasks: dict[str, TaskRecord]
    running: dict[str, Run]
    replaced_runs: dict[int, Run]
    schedule: dict[str, float]
    streams: dict[str, Stream]
    progress: dict[str, bytes]
    leases: dict[str, float]
    look_at: float | None
    lost: set[str]
    dying: set[str]
    suspects: Suspects
    alone: dict[str, str]
    stopping: set[str]
    max_losses: dict[str, int]
    lengths: set[str]
    fleet: dict[str, str]
    handed: set[str]
    cancel_requests: dict[str, list[bytes]]
    worker_tasks: dict[str, set[bytes]]
    task_workers: dict[bytes, set[str]]
    limits: dict[bytes, int]
    parked: dict[str, list[bytes]]
    slots: dict[bytes, set[bytes]]
    lines: dict[bytes, list[str]]
    unknown: dict[str, list[str]]
    unknown_functions: set[str]
    # By id: whether it is paused (p) or being resumed (r).
    pauses: dict[str, str]
    held_by: dict[str, str]
    # By the id of the pause, in order.
    held: dict[str, list[str]]
    finished: dict[str, FinishedRecord]
    finished_ttl: dict[str, int]
    # The letters by id.
    letters: dict[int, LetterRecord]
    letter_problems: list[str]
    # The keys of the letters.
    dead: set[str]
    deaths: dict[str, tuple[int, int]]
    buried_chains: set[str]
    # By id: how large, and how long it lives (-1: until it is unlinked).
    payloads: dict[str, tuple[int, int]]
    payload_data: dict[str, bytes]
    # The numbers of the failed attempts, by key. Of a finished task, too.
    failed_attempts: dict[str, tuple[int, ...]]
    epoch: int
    others: set[str]
    expiring: set[str]

    def call_of(self, task: TaskRecord) -> bytes:
        reference = task.reference
        return task.call if reference is None else self.payload_data[reference.id]

    @property
    def entries(self) -> list[StreamEntry]:
        return [entry for stream in self.streams.values() for entry in stream.entries]

    @property
    def consumers(self) -> set[str]:
        return self.streams["stream"].consumers | self.streams["front"].consumers

    @property
    def leftovers(self) -> set[str]:
        """What should be gone when all work is done and all workers have left."""
        left = self.others | set(self._kinds())
        left |= {f"consumer {name}" for name in self.consumers}
        return left | {f"entry {entry.key!r}" for entry in self.entries}

    def _kinds(self) -> Iterator[str]:
        for name, value in vars(self).items():
            if value and name not in _STAYS:
                yield name


def read_stored_state(ledger: Ledger, client: Any) -> StoredState:
    """Reads all keys of the database; those that are not this ledger's are `others`."""
    prefix = ledger.keys.prefix.encode("utf-8", "surrogatepass") + b":"
    # Entries of another program are kept as they are, and are no part of the stored state.
    names = sorted(name for name in client.keys("*") if name != prefix + b"foreign")
    pipe = client.pipeline(transaction=True)
    for name in names:
        pipe.pttl(name)
        _ask(pipe, name, name.removeprefix(prefix))
    replies = iter(pipe.execute(raise_on_error=False) if names else [])
    values: dict[str, dict[bytes, Any]] = {}
    others, expiring = set[str](), set[str]()
    finished: dict[str, FinishedRecord] = {}
    finished_ttl: dict[str, int] = {}
    payloads: dict[str, tuple[int, int]] = {}
    payload_data: dict[str, bytes] = {}
    failed_attempts: dict[str, tuple[int, ...]] = {}
    for name in names:
        suffix = name.removeprefix(prefix)
        ttl, value = next(replies), _answer(replies, suffix)
        family, has_name, rest = suffix.partition(b":=")
        if not name.startswith(prefix) or b":" in rest:
            others.add(repr(name))
            continue
        if family == b"runs":
            key = _unsegment(rest)
            finished[key], finished_ttl[key] = read_finished(value), ttl
            continue
        if family in _WINDOWS:
            assert ttl > 0, f"{name!r} stays for ever"
            continue
        if family == b"failed-attempts":
            assert ttl > 0, f"{name!r} stays for ever"
            failed_attempts[_unsegment(rest)] = tuple(row.attempt for row in read_failed_attempts(value))
            continue
        if family in _STATISTICS:
            continue
        if family == b"payload":
            payloads[rest.decode()] = (len(value), ttl)
            payload_data[rest.decode()] = value
            continue
        if ttl != -1:
            expiring.add(repr(name))
        values.setdefault(family.decode(), {})[rest if has_name else b""] = value

    def one(family: str, empty: Any) -> Any:
        return values.pop(family, {}).get(b"", empty)

    def text(value: bytes) -> str:
        return value.decode()

    leases, letters, held = one("leases", {}), read_letters(values), values.pop("held", {})
    assert len(one("secret", b"s" * 128)) == 128
    stored_state = StoredState(
        tasks={bytes_text(k): read_task(v) for k, v in one("tasks", {}).items()},
        running={bytes_text(k): Run.read(v) for k, v in one("running", {}).items()},
        replaced_runs={int(k): Run.read(v) for k, v in one("replaced-runs", {}).items()},
        schedule={bytes_text(k): due for k, due in one("scheduled", {}).items()},
        streams={"stream": one("stream", Stream()), "front": one("front", Stream())},
        progress={bytes_text(k): v for k, v in one("progress", {}).items()},
        leases={text(k): v for k, v in leases.items() if k and k not in MARKS},
        look_at=leases.get(b""),
        lost={text(k) for k in one("lost", {})},
        dying={text(k) for k in one("dying", set())},
        suspects=Suspects.read(one("suspects", {})),
        alone={text(k): bytes_text(v) for k, v in one("alone", {}).items()},
        stopping={text(k) for k in one("stopping", set())},
        max_losses={bytes_text(k): int(v) for k, v in one("max-losses", {}).items()},
        lengths={text(k) for k in one("lease-lengths", {})},
        fleet={text(k): text(v) for k, v in one("fleet", {}).items()},
        handed={text(k) for k in {**one("last-direct", {}), **one("offer-secrets", {})}},
        cancel_requests={text(k): v for k, v in values.pop("cancel-requests", {}).items()},
        worker_tasks={text(k): v for k, v in values.pop("worker-tasks", {}).items()},
        task_workers={k: {text(w) for w in v} for k, v in values.pop("task-workers", {}).items()},
        limits={k: int(v) for k, v in one("limits", {}).items()},
        parked={bytes_text(k): v.split(b"\n") for k, v in one("parked", {}).items()},
        slots=values.pop("slots", {}),
        lines={k: [bytes_text(m) for m in v] for k, v in values.pop("waiters", {}).items()},
        unknown={_unsegment(k): [bytes_text(m) for m in v] for k, v in values.pop("unknown", {}).items()},
        unknown_functions={bytes_text(k) for k in one("unknown-functions", {})},
        pauses={bytes_text(k): chr(v[0]) for k, v in one("pauses", {}).items() if k not in PAUSE_FIELDS},
        held_by={bytes_text(k): bytes_text(v) for k, v in held.pop(b"", {}).items()},
        held={_unsegment(k): [bytes_text(m[10:]) for m in v] for k, v in held.items()},
        finished=finished,
        finished_ttl=finished_ttl,
        letters=letters.records,
        letter_problems=letters.problems,
        dead={letter.key for letter in letters.records.values()},
        deaths=letters.deaths,
        buried_chains={bytes_text(k) for k in one("buried-chains", {})},
        payloads=payloads,
        payload_data=payload_data,
        failed_attempts=failed_attempts,
        epoch=int(one("epoch", b"0")),
        others=others,
        expiring=expiring,
    )
    for family in ("sweep-cursor", "automatic", "cancelled-chains", "deploys", "keep-failures"):
        values.pop(family, None)
    # Offers end by themselves: that of a worker who is gone harms nobody.
    values.pop("offers", None)
    # So do the leases of manual runs.
    values.pop("manual-leases", None)
    stored_state.others |= set(values)
    return stored_state


def problems(stored_state: StoredState, *, group_was_lost: bool = False) -> list[str]:
    """What is wrong with the stored state; nothing, ever.

    A group that was destroyed took the list of who had been given what
    with it: until its entries have been read again, they may be with
    one worker and run by another, and a run may outlive its worker.
    """
    return list(_problems(stored_state, group_was_lost))


def _problems(b: StoredState, group_was_lost: bool) -> Iterator[str]:
    for name in b.others:
        yield f"a key that belongs to nobody: {name}"
    for name in b.expiring:
        yield f"unfinished work with a time to live: {name}"
    for key, ttl in b.finished_ttl.items():
        if ttl <= 0:
            yield f"finished record of {key!r} without a time to live"
        if key in b.tasks:
            yield f"{key!r} is finished and unfinished"
    for key, task in b.tasks.items():
        if task.flags & RETRIED and not b.failed_attempts.get(key):
            yield f"{key!r} was retried, and its failed attempts are gone"
    yield from b.letter_problems
    for key, task in b.tasks.items():
        if bool(task.flags & REVIVED) != (key in b.deaths):
            yield f"{key!r} was retried or not, and its deaths are {b.deaths.get(key)}"
    for key in b.deaths.keys() - b.tasks.keys():
        yield f"the deaths of {key!r} are left"

    yield from _payloads(b)
    yield from _places(b)
    yield from _runs(b, group_was_lost)
    yield from _limits(b)
    yield from _workers(b, group_was_lost)
    yield from _suspects(b, group_was_lost)


def _payloads(b: StoredState) -> Iterator[str]:
    owners = {f"task {key!r}": task.reference for key, task in b.tasks.items()}
    owners |= {f"letter {id}": letter.task.reference for id, letter in b.letters.items()}
    owned = {reference.id for reference in owners.values() if reference is not None}
    for owner, reference in owners.items():
        if reference is not None and b.payloads.get(reference.id) != (reference.size, -1):
            yield f"{owner} refers to {reference}, and there is {b.payloads.get(reference.id)}"
    if len(owned) < len([reference for reference in owners.values() if reference is not None]):
        yield "two tasks or letters have one payload"
    for id, (_, ttl) in b.payloads.items():
        if ttl == -1 and id not in owned:
            yield f"payload {id} has no owner and no time to live"


def _places(b: StoredState) -> Iterator[str]:
    for key, task in b.tasks.items():
        at = [f"{name} {e.id}" for name, s in b.streams.items() for e in s.entries if e.key == key]
        at += ["schedule"] if key in b.schedule else []
        at += [f"line {name!r}" for name, line in b.lines.items() if key in line]
        at += [f"unknown {name!r}" for name, keys in b.unknown.items() if key in keys]
        at += [f"held {name!r}" for name, keys in b.held.items() if key in keys]
        match task.location:
            case place if place == SCHEDULED:
                expected = "schedule"
            case place if place == IN_STREAM:
                expected = f"stream {task.entry}"
            case place if place == IN_FRONT:
                expected = f"front {task.entry}"
            case place if place == WAITING_FOR_SLOT:
                expected = f"line {b.parked[key][-1]!r}" if key in b.parked else "a line"
            case place if place == UNKNOWN_FUNCTION:
                expected = f"unknown {task.function_name!r}"
            case place if place == HELD:
                expected = f"held {b.held_by.get(key)!r}"
            case place:
                expected = f"unknown place {place}"
        if at != [expected]:
            yield f"{key!r} should be in [{expected}] and is in {at}"
    if set(b.unknown) != b.unknown_functions:
        yield f"unknown functions {b.unknown_functions}, but tasks of {set(b.unknown)} wait"
    lined = [k for line in [*b.lines.values(), *b.unknown.values(), *b.held.values()] for k in line]
    if sorted(b.held_by) != sorted(k for keys in b.held.values() for k in keys):
        yield f"held by {b.held_by}, and it says {b.held}"
    for key in b.held_by:
        if key in b.running or key in b.parked:
            yield f"{key!r} is held, and runs or has the slot of a limit"
    for key in [e.key for e in b.entries] + list(b.schedule) + lined:
        if key not in b.tasks:
            yield f"{key!r} waits, but has no record"
    for name, stream in b.streams.items():
        if stream.dangling:
            yield f"pending without an entry on {name}: {stream.dangling}"


def _runs(b: StoredState, group_was_lost: bool) -> Iterator[str]:
    for key, run in b.running.items():
        task = b.tasks.get(key)
        if task is None:
            yield f"{key!r} runs, but has no record"
            continue
        if (task.location, task.entry) != (IN_FRONT if run.flags & FROM_FRONT else IN_STREAM, run.entry):
            yield f"the run of {key!r} is of another entry than its task"
        if run.epoch > b.epoch:
            yield f"the run of {key!r} has epoch {run.epoch}, beyond {b.epoch}"
        alive = run.worker in b.leases or run.worker in b.dying
        if not alive and not group_was_lost:
            yield f"{key!r} is run by {run.worker}, who is gone"
        stream = b.streams[run.stream]
        holders = [e.holder for e in stream.entries if e.id == run.entry]
        if holders != [run.worker] and not group_was_lost:
            yield f"{key!r} is run by {run.worker} and pending with {holders}"
        if holders == [None] and stream.has_group and not stream.undelivered(run.entry):
            yield f"{key!r} runs, and nobody would find it if its worker died"
    for name, stream in b.streams.items():
        for e in stream.entries:
            if e.holder is None and stream.has_group and not stream.undelivered(e.id):
                yield f"{e.key!r} on {name} was delivered and is pending with nobody"
    for key in b.progress:
        if key not in b.running and not (key in b.tasks and b.tasks[key].flags & HAS_PROGRESS):
            yield f"progress of {key!r}, which does not run"
    epochs = [run.epoch for run in b.running.values()] + list(b.replaced_runs)
    if len(epochs) != len(set(epochs)):
        yield f"an epoch was given out twice: {sorted(epochs)}"


def _limits(b: StoredState) -> Iterator[str]:
    holders: dict[bytes, set[bytes]] = {}
    for run in [*b.running.values(), *b.replaced_runs.values()]:
        for limit in run.limits:
            holders.setdefault(limit, set()).add(b"r%d" % run.epoch)
    for key, limits in b.parked.items():
        if key not in b.tasks:
            yield f"{key!r} is parked at {limits}, but has no record"
        # The last is the one a task waits for, or was woken
        # for; of those before it the task has a slot.
        waits = key in b.lines.get(limits[-1], [])
        for limit in limits[:-1] if waits else limits:
            holders.setdefault(limit, set()).add(b"w" + key.encode("utf-8", "surrogatepass"))
    if holders != b.slots:
        yield f"slots are held by {b.slots}, and should be by {holders}"
    if set(b.limits) != set(b.slots) | set(b.lines):
        yield f"limits {set(b.limits)} are written down, {set(b.slots) | set(b.lines)} are used"
    for limit, line in b.lines.items():
        if line and len(b.slots.get(limit, ())) < b.limits[limit]:
            yield f"{line} wait for {limit!r} although there is a free slot"


def _workers(b: StoredState, group_was_lost: bool) -> Iterator[str]:
    present = set(b.leases) | b.dying
    if set(b.leases) != b.lengths - b.dying:
        yield f"leases {set(b.leases)}, lengths {b.lengths}"
    if b.look_at is not None and not b.leases and not b.dying:
        yield "there is a call for reclaiming, and nobody to hear it"
    if b.dying and b.look_at is None:
        yield f"{b.dying} are dying, and nobody is called to look"
    for what, names in (
        ("a lease's length", b.lengths),
        ("a duty", {b.fleet[name] for name in ("leader", "deputy") if name in b.fleet}),
        ("a direct delivery", b.handed),
        ("a reserved suspect", set(b.suspects.reserved)),
        ("a suspect given up", b.suspects.unwilling),
        ("the number of runs", set(b.suspects.had_one_run)),
        ("a suspect that it runs alone", set(b.alone)),
        ("word that it stops", b.stopping),
        ("cancel-requests", set(b.cancel_requests)),
        ("a list of tasks", set(b.worker_tasks)),
        ("replaced-runs", {run.worker for run in b.replaced_runs.values()}),
    ):
        if names - present:
            yield f"{what} of workers who are gone: {names - present}"
    listed = {worker for workers in b.task_workers.values() for worker in workers}
    if listed - present:
        yield f"workers who are gone are said to know tasks: {listed - present}"
    if set(b.leases) & b.lost:
        yield f"lost workers with a lease: {set(b.leases) & b.lost}"
    if b.leases and len({"leader", "deputy"} & set(b.fleet)) < min(len(b.leases), 2) and b.look_at is None:
        yield f"{len(b.leases)} workers, of which {b.fleet} have a duty, and nobody is called to take one"
    if b.fleet.get("leader") and b.fleet.get("leader") == b.fleet.get("deputy"):
        yield f"{b.fleet['leader']} is its own deputy"


def _suspects(b: StoredState, group_was_lost: bool) -> Iterator[str]:
    s = b.suspects
    live: dict[str, int] = {}
    for key, group in s.group_of.items():
        live[group] = live.get(group, 0) + 1
        if key not in b.tasks or b.tasks[key].losses < SUSPECT_AFTER:
            yield f"{key!r} is in a group of suspects, and is none"
    if live != {group: members for group, (_, members) in s.sizes.items()}:
        yield f"groups have members {live}, and should have {s.sizes}"
    running: dict[tuple[str, str], int] = {}
    for key, run in b.running.items():
        if not run.flags & SUSPECT:
            continue
        if key not in s.group_of:
            yield f"the suspect {key!r} runs and has no group"
            continue
        at = s.group_of[key], run.worker
        running[at] = running.get(at, 0) + 1
    if running != s.running:
        yield f"suspects run at {running}, and it says at {s.running}"
    for (group, worker), count in s.running.items():
        size, members = s.sizes.get(group, (0, 0))
        if members > size or count > max(1, size // 2):
            yield f"{worker} runs {count} of the {members} left of a group of {size}"
    for key in s.met:
        if s.sizes.get(s.group_of.get(key, ""), (0, 0))[0] != 1:
            yield f"{key!r} was met by a busy worker, and is no single suspect"
    if s.reserved != {worker: key for key, worker in s.met.items() if worker}:
        yield f"{s.reserved} are reserved, and it says {s.met}"
    for key in s.lives:
        if key not in b.tasks or b.tasks[key].losses < SUSPECT_AFTER:
            yield f"{key!r} is not a suspect, and it says how long it lived"
    marked = {run.worker: key for key, run in b.running.items() if run.flags & ALONE}
    if not (marked | s.reserved).items() <= b.alone.items():
        yield f"{marked} run alone, {s.reserved} are reserved, and it says {b.alone}"
    for worker, key in b.alone.items():
        if s.reserved.get(worker) != key and (key not in b.running or b.running[key].worker != worker):
            yield f"{worker} does not run {key!r} alone any more"
    for worker, key in s.reserved.items():
        holders = [e.holder for e in b.entries if e.key == key]
        if (key in b.running or holders != [worker]) and not group_was_lost:
            yield f"{worker} has reserved {key!r}, which is with {holders}"


def _ask(pipe: Any, name: bytes, suffix: bytes) -> None:
    if suffix.partition(b":=")[0] in _WINDOWS | _STATISTICS:
        pipe.exists(name)
        return
    match _kind(suffix):
        case "stream":
            pipe.xrange(name)
            pipe.xinfo_groups(name)
            pipe.xinfo_consumers(name, GROUP)
            pipe.xpending_range(name, GROUP, "-", "+", 1000)
        case "hash":
            pipe.hgetall(name)
        case "set":
            pipe.smembers(name)
        case "sorted set":
            pipe.zrange(name, 0, -1, withscores=True)
        case "list":
            pipe.lrange(name, 0, -1)
        case _:
            pipe.get(name)


def _answer(replies: Iterator[Any], suffix: bytes) -> Any:
    reply = next(replies)
    if isinstance(reply, Exception):
        raise reply
    match _kind(suffix):
        case "stream":
            return _stream(reply, *(next(replies) for _ in range(3)))
        case "sorted set":
            return dict(reply)
        case _:
            return reply


def _kind(suffix: bytes) -> str:
    if suffix == b"held":
        return "hash"
    match suffix.partition(b":=")[0].decode("utf-8", "replace"):
        case "stream" | "front":
            return "stream"
        case (
            "tasks"
            | "running"
            | "replaced-runs"
            | "progress"
            | "suspects"
            | "alone"
            | "max-losses"
            | "lease-lengths"
            | "fleet"
            | "last-direct"
            | "offer-secrets"
            | "limits"
            | "parked"
            | "sweep-cursor"
            | "cancelled-chains"
            | "deploys"
            | "unknown-functions"
            | "pauses"
            | "settings"
            | "letter-records"
            | "letter-kinds"
            | "letter-counts"
            | "deaths"
            | "buried-chains"
            | "keep-failures"
        ):
            return "hash"
        case "scheduled" | "leases" | "lost" | "waiters" | "offers" | "manual-leases" | "unknown" | "held":
            return "sorted set"
        case "letters" | "letter-ends" | "letter-keys" | "letter-kind":
            return "sorted set"
        case "automatic" | "dying" | "stopping" | "slots" | "worker-tasks" | "task-workers":
            return "set"
        case "cancel-requests":
            return "list"
        case _:
            return "string"


def _stream(entries: Any, groups: Any, consumers: Any, pending: Any) -> Stream:
    stream = Stream([StreamEntry(id.decode(), bytes_text(key_of(fields)), None) for id, fields in entries])
    if not groups:
        return stream
    (group,) = groups
    assert group["name"] == GROUP, group
    ms, _, seq = group["last-delivered-id"].decode().partition("-")
    stream.has_group, stream.delivered_up_to = True, (int(ms), int(seq))
    stream.consumers = {c["name"].decode() for c in consumers}
    by_id = {entry.id: entry for entry in stream.entries}
    for row in pending:
        id = row["message_id"].decode()
        if id in by_id:
            by_id[id].holder = row["consumer"].decode()
        else:
            stream.dangling.append(id)
    return stream


def key_of(fields: dict[bytes, bytes]) -> bytes:
    """The key of the task in a stream entry."""
    ((name, value),) = fields.items()
    key = entry_key((name, value))
    assert key is not None, fields
    return key


def _unsegment(data: bytes) -> str:
    text = bytes_text(data).replace("%3A", ":").replace("%25", "%")
    assert segment(text) == bytes_text(data), f"{data!r} is not a segment"
    return text
