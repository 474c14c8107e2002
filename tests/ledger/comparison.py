"""The model held against the stored state."""

from __future__ import annotations

from typing import Any

from docket.storage.schema.locations import HELD, IN_FRONT, IN_STREAM, SCHEDULED, UNKNOWN_FUNCTION, WAITING_FOR_SLOT
from docket.storage.schema.records import CANCEL_ASKED, RETRIED

from .invariants import ALONE, SUSPECT, StoredState
from .model import Group, Held, Model, Run, Task, Waiting

LOCATIONS = {
    SCHEDULED: "schedule",
    IN_STREAM: "stream",
    WAITING_FOR_SLOT: "line",
    IN_FRONT: "front",
    UNKNOWN_FUNCTION: "unknown",
    HELD: "held",
}


def assert_same(m: Model, b: StoredState) -> None:
    assert {k: (t.location, t.generation, t.attempt, t.losses, t.call) for k, t in m.tasks.items()} == {
        k: (LOCATIONS[t.location], t.generation, t.attempt, t.losses, b.call_of(t)) for k, t in b.tasks.items()
    }
    assert {k: t.failed for k, t in m.tasks.items()} == {k: _failed(b, k) for k in b.tasks}
    assert m.running == {k: _run(r) for k, r in b.running.items()}
    assert m.replaced_runs == {e: _run(r) for e, r in b.replaced_runs.items()}
    assert m.schedule == set(b.schedule)
    for name, entries in m.streams.items():
        assert [(e.key, e.holder) for e in entries] == [(e.key, e.holder) for e in b.streams[name].entries]
        for ours, theirs in zip(entries, b.streams[name].entries, strict=True):
            assert ours.id in (None, theirs.id)
            ours.id = theirs.id
    assert [key for _, key in sorted(m.unknown)] == b.unknown.get("f", [])
    assert m.pauses == b.pauses
    assert {rule: [h.key for h in held] for rule, held in m.held.items() if held} == b.held
    for h in (h for held in m.held.values() for h in held):
        h.id = b.tasks[h.key].entry
    assert m.progress == b.progress
    assert m.finished == {k: (r.state.value, r.task.generation) for k, r in b.finished.items()}
    assert m.dead == b.dead
    assert set(m.workers) == set(b.leases)
    assert m.dying == b.dying
    assert m.stopping == b.stopping
    assert _partition(m.groups) == _partition(_groups(b))
    assert m.met == b.suspects.met
    assert {w: o for w, o in m.cancel_requests.items() if o} == {
        w: _cancel_requests(o) for w, o in b.cancel_requests.items()
    }
    assert m.parked == _parked(b)
    assert {n: [k for _, k in line] for n, line in m.lines.items() if line} == {
        n.decode(): line for n, line in b.lines.items()
    }
    assert {n: slots for n, slots in m.slots.items() if slots} == _slots(b)
    assert {n.decode(): most for n, most in b.limits.items()}.items() <= m.most.items()


def adopt_front_order(m: Model, b: StoredState) -> None:
    """Where a promise names no order, any order of those that are new at the front will do."""
    position = {e.key: i for i, e in enumerate(b.streams["front"].entries)}
    known = [e for e in m.streams["front"] if e.id is not None]
    fresh = [e for e in m.streams["front"] if e.id is None]
    m.streams["front"] = known + sorted(fresh, key=lambda e: position.get(e.key, -1))


def adopt(m: Model, b: StoredState) -> None:
    """The model starts again from the state of the server."""
    m.tasks = {
        k: Task(b.call_of(t), t.attempt, t.generation, t.losses, LOCATIONS[t.location], failed=_failed(b, k))
        for k, t in b.tasks.items()
    }
    m.running = {k: _run(r) for k, r in b.running.items()}
    m.replaced_runs = {e: _run(r) for e, r in b.replaced_runs.items()}
    m.streams = {n: [Waiting(e.key, e.holder, e.id) for e in s.entries] for n, s in b.streams.items()}
    m.progress = dict(b.progress)
    known = {h.key: h for held in m.held.values() for h in held}
    m.held = {
        rule: [Held(k, known[k].was_on_stream, b.tasks[k].entry, known[k].round) for k in keys]
        for rule, keys in b.held.items()
    }
    m.finished = {k: (r.state.value, r.task.generation) for k, r in b.finished.items()}
    m.dead = set(b.dead)
    m.dying = set(b.dying)
    m.stopping = set(b.stopping)
    m.groups = _groups(b)
    m.met = dict(b.suspects.met)
    m.parked = _parked(b)
    ranks = {k: rank for line in m.lines.values() for rank, k in line}
    m.lines = {n.decode(): [(ranks[k], k) for k in line] for n, line in b.lines.items()}
    m.slots = _slots(b)


def _run(r: Any) -> Run:
    limits = tuple(limit.decode() for limit in r.limits)
    return Run(r.worker, r.epoch, bool(r.flags & SUSPECT), bool(r.flags & CANCEL_ASKED), limits, bool(r.flags & ALONE))


def _failed(b: StoredState, key: str) -> tuple[int, ...]:
    """Without the flag, the rows are of an earlier task."""
    return b.failed_attempts[key] if b.tasks[key].flags & RETRIED else ()


def _groups(b: StoredState) -> dict[str, Group]:
    """By member; members of one group share it."""
    groups = {name: Group(size) for name, (size, _) in b.suspects.sizes.items()}
    return {key: groups[group] for key, group in b.suspects.group_of.items()}


def _partition(groups: dict[str, Group]) -> list[tuple[list[str], int]]:
    members: dict[int, list[str]] = {}
    for key, group in groups.items():
        members.setdefault(id(group), []).append(key)
    return sorted((sorted(keys), groups[keys[0]].size) for keys in members.values())


def _parked(b: StoredState) -> dict[str, tuple[str, ...]]:
    return {k: tuple(name.decode() for name in names) for k, names in b.parked.items()}


def _slots(b: StoredState) -> dict[str, set[str]]:
    return {n.decode(): {_slot(holder) for holder in holders} for n, holders in b.slots.items()}


def _slot(holder: bytes) -> str:
    kind, owner = holder[:1], holder[1:]
    return f"run {int(owner)}" if kind == b"r" else f"task {owner.decode('utf-8', 'surrogatepass')}"


def _cancel_requests(stored: list[bytes]) -> list[tuple[int, str]]:
    split = (request.partition(b" ") for request in stored)
    return [(int(epoch), key.decode("utf-8", "surrogatepass")) for epoch, _, key in split]
