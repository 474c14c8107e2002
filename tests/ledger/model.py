"""What the ledger promises, as a few dozen lines of plain Python that need no server.

Keys wait in a schedule, on two streams or in lines; runs have epochs; limits have slots. Each verb
does what the script of that name must do, and says what it must answer.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

SUSPECT_AFTER, MAX_LOSSES = 2, 3
MOST_FAILED = 10
Limits = tuple[tuple[str, int], ...]


@dataclass
class Task:
    call: bytes
    attempt: int = 1
    generation: int = 1
    losses: int = 0
    location: str = ""
    # The attempts that failed and were retried.
    failed: tuple[int, ...] = ()


@dataclass
class Run:
    worker: str
    epoch: int = 0
    suspect: bool = False
    cancel_asked: bool = False
    limits: tuple[str, ...] = ()
    alone: bool = False


@dataclass(eq=False)
class Group:
    """Suspects that were lost together; the size is that at the time."""

    size: int = 0


@dataclass
class Waiting:
    """A stream entry; the holder is the worker it was delivered to."""

    key: str
    holder: str | None = None
    id: str | None = None


@dataclass
class Held:
    """A task that a pause holds: whether it was on the stream, not on the front stream, the id of
    its entry, if that is known, and how many times tasks had begun to go on before it was held."""

    key: str
    was_on_stream: bool
    id: str | None
    round: int = 0

    @property
    def position(self) -> tuple[bool, int, float, float]:
        ms, _, seq = (self.id or "inf-0").partition("-")
        return self.was_on_stream, -self.round, float(ms), float(seq)


@dataclass
class ModelTask:
    key: str
    call: bytes
    later: bool
    replace: bool


@dataclass
class Ending:
    key: str
    epoch: int
    kind: str  # "finish", "reschedule", "requeue", "unknown" or "hold"
    state: str = "completed"
    dead_letter: bool = False
    later: bool = False
    call: bytes | None = None
    is_retry: bool = False
    only_if_known: bool = False
    rule: str = ""


@dataclass
class Model:
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    running: dict[str, Run] = field(default_factory=dict[str, Run])
    replaced_runs: dict[int, Run] = field(default_factory=dict[int, Run])
    schedule: set[str] = field(default_factory=set[str])
    unknown: set[tuple[int, str]] = field(default_factory=set[tuple[int, str]])
    streams: dict[str, list[Waiting]] = field(default_factory=lambda: {"stream": [], "front": []})
    # By the id of the rule: whether it is paused (p) or being resumed (r).
    pauses: dict[str, str] = field(default_factory=dict[str, str])
    held: dict[str, list[Held]] = field(default_factory=dict[str, list[Held]])
    rounds: int = 0
    met_suspects: bool = False
    progress: dict[str, bytes] = field(default_factory=dict[str, bytes])
    finished: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    dead: set[str] = field(default_factory=set[str])
    workers: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    dying: set[str] = field(default_factory=set[str])
    stopping: set[str] = field(default_factory=set[str])
    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    met: dict[str, str] = field(default_factory=dict[str, str])
    # Whether a busy worker reserves a single suspect
    # depends on the time, so the server has the say.
    reserves: Callable[[str, str], bool] = lambda worker, key: False
    cancel_requests: dict[str, list[tuple[int, str]]] = field(default_factory=dict[str, list[tuple[int, str]]])
    most: dict[str, int] = field(default_factory=dict[str, int])
    slots: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    lines: dict[str, list[tuple[int, str]]] = field(default_factory=dict[str, list[tuple[int, str]]])
    parked: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    # The verbs

    def enqueue(self, calls: Iterable[ModelTask]) -> list[tuple[bool, int]]:
        answers: list[tuple[bool, int]] = []
        for new in calls:
            before = self.tasks.get(new.key)
            if before and not new.replace:
                answers.append((False, before.generation))
                continue
            _, last_generation = self.finished.pop(new.key, ("", 0))
            task = Task(new.call, generation=(before.generation if before else last_generation) + 1)
            if before:
                self._remove_from_location(new.key)
            self.tasks[new.key] = task
            self._put(new.key, "schedule" if new.later else "stream")
            answers.append((True, task.generation))
        return answers

    def stage(self, due: list[str]) -> None:
        for key in due:
            self.schedule.discard(key)
            self._put(key, "front" if self.tasks[key].losses > 0 else "stream")

    def deliver(self, worker: str, streams: Iterable[tuple[str, int]]) -> list[Waiting]:
        delivered: list[Waiting] = []
        for stream, most in streams:
            for entry in [e for e in self.streams[stream] if e.holder is None][:most]:
                entry.holder = worker
                delivered.append(entry)
        return delivered

    def take(self, worker: str, count: int, *, with_unknown: bool = False) -> list[str] | None:
        """The keys that are handed out, those claimed before included."""
        if worker not in self.workers:
            return None
        entries = self.deliver(worker, [("front", count)])
        for epoch, key in sorted(self.unknown)[: count - len(entries) if with_unknown else 0]:
            self.unknown.discard((epoch, key))
            self._put(key, "front")
        entries += self.deliver(worker, [("front", count - len(entries))])
        entries += self.deliver(worker, [("stream", count - len(entries))])
        claimed = self._claim(worker, entries)
        for _ in range(9):
            if claimed or not entries or with_unknown or self.met_suspects or not self.pauses:
                break
            entries = self.deliver(worker, [("front", count)])
            entries += self.deliver(worker, [("stream", count - len(entries))])
            claimed = self._claim(worker, entries)
        return claimed

    def claim(self, worker: str, delivered: list[tuple[str, str]], *, gives_up: bool = False) -> list[str] | None:
        """`delivered` are streams and ids: two streams may well use the same id."""
        if worker not in self.workers:
            if delivered:
                self.dying.add(worker)
            return None
        live = {(name, e.id): e for name, stream in self.streams.items() for e in stream}
        return self._claim(worker, [live[entry] for entry in delivered if entry in live], gives_up=gives_up)

    def settle(self, endings: list[Ending]) -> list[str]:
        answers: list[str] = []
        over: list[tuple[str, Run]] = []
        for ending in endings:
            key, run = ending.key, self.running.get(ending.key)
            if run is None or run.epoch != ending.epoch:
                answers.append("lost")
                self._release_replaced_run(ending.epoch)
            elif self._keeps_run(ending, run):
                answers.append("kept")
            else:
                cancelled = run.cancel_asked and ending.kind != "finish"
                waits = ending.kind == "unknown" and not self._known_elsewhere(run.worker)
                answers.append("cancelled" if cancelled else "waits" if waits else "done")
                over.append((key, run))
                del self.running[key]
                entry = self._take_entry(key)
                self.progress.pop(key, None)
                if cancelled:
                    self._finish(key, "cancelled")
                elif ending.kind == "finish":
                    self._finish(key, ending.state)
                    if ending.dead_letter:
                        self.dead.add(key)
                elif ending.kind == "hold":
                    self._hold(ending.rule, entry)
                else:
                    self._go_on(ending)
        for key, run in over:
            self._release(run)
            self._leave_line(key)
        return answers

    def acquire(self, key: str, epoch: int, limits: Limits) -> str:
        run = self.running.get(key)
        if run is None or run.epoch != epoch:
            return "lost"
        if run.limits:
            return "acquired"
        kept = self.parked.pop(key, ())
        for name in kept:
            self._slots(name).discard(f"task {key}")
        names, full = sorted(name for name, _ in limits), None
        self.most.update(limits)
        for name in names:
            free = len(self._slots(name)) < self.most[name]
            if full is None and not (free and (name in kept or not self.lines.get(name))):
                full = name
        if full is None:
            run.limits = tuple(names)
            for name in names:
                self._slots(name).add(f"run {epoch}")
        else:
            was_put_back = self.tasks[key].location == "front"
            self._end_run(key, keep_slots=False)
            self.progress.pop(key, None)
            if run.cancel_asked:
                self._finish(key, "cancelled")
            else:
                self._line_up(key, names[: names.index(full) + 1], epoch - 2**51 if was_put_back else epoch)
        for name in {*kept, *names}:
            self._wake(name)
        return "acquired" if full is None else "parked"

    def write_progress(self, key: str, epoch: int, data: bytes) -> bool:
        run = self.running.get(key)
        if run is None or run.epoch != epoch:
            return False
        self.progress[key] = data
        return True

    def cancel(self, key: str) -> int:
        if key not in self.tasks:
            return 0
        run = self.running.get(key)
        if run is None:
            self._remove_from_location(key)
            self._finish(key, "cancelled")
            return 1
        if not run.cancel_asked:
            run.cancel_asked = True
            if run.worker in self.workers:
                self.cancel_requests.setdefault(run.worker, []).append((run.epoch, key))
        return 2

    def clear(self) -> int:
        return sum(self.cancel(key) for key in [k for k in self.tasks if k not in self.running])

    def register(self, worker: str, tasks: set[str]) -> None:
        self.workers[worker] = tasks

    def renew(self, worker: str) -> list[tuple[int, str]]:
        """The cancel requests of a worker, without those whose run is over."""
        epochs = {run.epoch for run in self.running.values()}
        self.cancel_requests[worker] = [o for o in self.cancel_requests.get(worker, []) if o[0] in epochs]
        return self.cancel_requests[worker]

    def stop(self, worker: str) -> None:
        """It is told to: whatever it is lost with from now on does not count."""
        self.stopping.add(worker)

    def leave(self, worker: str) -> bool:
        self._deregister(worker)
        self._release_replaced_runs(worker)
        holds = any(e.holder == worker for stream in self.streams.values() for e in stream)
        if holds:
            self.dying.add(worker)
            self.stopping.add(worker)
        return holds

    def expire(self, worker: str) -> None:
        self.workers.pop(worker)
        self.dying.add(worker)

    def reclaim(self, consumers: set[str]) -> None:
        self.dying |= consumers - set(self.workers)
        for worker in sorted(self.dying):
            held = [e for stream in ("stream", "front") for e in self.streams[stream] if e.holder == worker]
            new_groups: dict[Group | None, Group] = {}
            for entry in held:
                self._recover(entry, worker, new_groups)
            self._release_replaced_runs(worker)
            self._deregister(worker)
        self.dying.clear()

    def sweep(self) -> int:
        orphans = [k for k, r in self.running.items() if r.worker not in self.workers and r.worker not in self.dying]
        lost = [h.key for rule, held in self.held.items() if rule not in self.pauses for h in held]
        for key in lost:
            self._remove_from_location(key)
            self._put(key, "front")
        for key in orphans:
            run = self.running[key]
            self._remove_from_location(key)
            if run.cancel_asked:
                self._finish(key, "cancelled")
            else:
                self._put(key, "front")
        return len(orphans) + len(lost)

    def pause(self, rule: str) -> None:
        self.pauses[rule] = "p"

    def resume(self, rule: str, most: int) -> int | None:
        state, held = self.pauses.get(rule), len(self.held.get(rule, ()))
        if state == "p":
            self.pauses[rule] = "r"
            self.rounds += 1
            self._let_go(rule, most)
        return held if state else None

    def release(self, rule: str, most: int) -> tuple[int, int | None]:
        if self.pauses.get(rule) != "r":
            return 0, None
        moved = 0
        if not any(e.holder is None for e in self.streams["front"]):
            moved = self._let_go(rule, most)
        return moved, len(self.held.get(rule, ()))

    def destroy_group(self, stream: str) -> None:
        for entry in self.streams[stream]:
            entry.holder = None

    # What they are made of

    def _put(self, key: str, location: str) -> None:
        self.tasks[key].location = location
        if location == "schedule":
            self.schedule.add(key)
        else:
            self.streams[location].append(Waiting(key))

    def _take_entry(self, key: str) -> Waiting:
        taken = Waiting(key)
        for entries in self.streams.values():
            taken = next((e for e in entries if e.key == key), taken)
            entries[:] = [e for e in entries if e.key != key]
        return taken

    def _keeps_run(self, ending: Ending, run: Run) -> bool:
        """Nothing changes: no other worker knows the function, or the pause no longer holds it."""
        if ending.kind == "hold":
            return not self._holds(ending.rule, self.tasks[ending.key].location)
        return ending.only_if_known and not self._known_elsewhere(run.worker)

    def _holds(self, rule: str, location: str) -> bool:
        state = self.pauses.get(rule)
        return state == "p" or (state == "r" and location == "stream")

    def _hold(self, rule: str, entry: Waiting) -> None:
        task = self.tasks[entry.key]
        held = self.held.setdefault(rule, [])
        on_stream = task.location == "stream"
        held.append(Held(entry.key, on_stream, entry.id, 0 if on_stream else self.rounds))
        held.sort(key=lambda h: h.position)
        task.location = "held"

    def _let_go(self, rule: str, most: int) -> int:
        held = self.held.get(rule, [])
        gone, held[:] = held[:most], held[most:]
        for h in gone:
            self._put(h.key, "front")
        if not held:
            del self.pauses[rule]
        if not self.pauses:
            self.rounds = 0
        return len(gone)

    def _claim(self, worker: str, entries: list[Waiting], *, gives_up: bool = False) -> list[str]:
        claimed: list[str] = []
        self.met_suspects = False
        held = [e for stream in self.streams.values() for e in stream if e.holder == worker]
        runs_some = any(e.key in self.running and self.running[e.key].worker == worker for e in entries)
        idle, taken = all(e in entries for e in held) and not runs_some, False
        for entry in entries:
            key, run = entry.key, self.running.get(entry.key)
            suspect = self.tasks[key].losses >= SUSPECT_AFTER
            if run and run.worker != worker:
                entry.holder = run.worker
            elif run:
                claimed.append(key)
            elif rule := next((r for r in ("=f", "*") if self._holds(r, self.tasks[key].location)), None):
                self.met.pop(key, None)
                self._leave_line(key)
                self._hold(rule, self._take_entry(key))
            elif taken or (location := self._judge(worker, key, idle, gives_up) if suspect else "here") == "front":
                self._take_entry(key)
                self._put(key, "front")
            elif location == "schedule":
                self._take_entry(key)
                self._put(key, "schedule")
            elif location != "reserved":
                self.running[key] = Run(worker, suspect=suspect, alone=location == "alone")
                claimed.append(key)
                idle, taken = False, location == "alone"
        return claimed

    def _judge(self, worker: str, key: str, idle: bool, gives_up: bool) -> str:
        """Where a suspect goes: at most half of a group runs
        at one worker, a single one gets it to itself."""
        self.met_suspects = True
        group = self.groups.setdefault(key, Group(1))
        if group.size > 1:
            here = [k for k, r in self.running.items() if r.worker == worker and self.groups.get(k) is group]
            return "here" if len(here) < max(1, group.size // 2) else "front"
        if idle and not gives_up and not self._too_many_are_alone(worker):
            self.met.pop(key, None)
            return "alone"
        if not gives_up and self.reserves(worker, key):
            self.met[key] = worker
            return "reserved"
        self.met[key] = ""
        return "schedule"

    def _too_many_are_alone(self, worker: str) -> bool:
        """Half of the workers, at least one, may run a suspect alone or have one reserved."""
        alone = {run.worker for run in self.running.values() if run.alone} | {w for w in self.met.values() if w}
        return len(alone - {worker}) >= max(1, len(self.workers) // 2)

    def _go_on(self, ending: Ending) -> None:
        task = self.tasks[ending.key]
        if ending.kind == "reschedule":
            task.failed = (*task.failed, task.attempt)[-MOST_FAILED:] if ending.is_retry else ()
            task.attempt, task.losses, task.call = task.attempt + 1, 0, ending.call or task.call
            self._leave_group(ending.key)
            self._put(ending.key, "schedule" if ending.later else "stream")
        elif ending.kind == "unknown":
            task.location = "unknown"
            self.unknown.add((ending.epoch, ending.key))
        else:
            self._put(ending.key, "schedule" if ending.later else "front")

    def _leave_group(self, key: str) -> None:
        self.groups.pop(key, None)
        self.met.pop(key, None)

    def _finish(self, key: str, state: str) -> None:
        self._leave_group(key)
        self.progress.pop(key, None)
        self.finished[key] = state, self.tasks.pop(key).generation

    def _end_run(self, key: str, *, keep_slots: bool) -> None:
        run = self.running.pop(key)
        self._take_entry(key)
        if keep_slots and run.limits and (run.worker in self.workers or run.worker in self.dying):
            self.replaced_runs[run.epoch] = run
        else:
            self._release(run)

    def _remove_from_location(self, key: str) -> None:
        if key in self.running:
            self._end_run(key, keep_slots=True)
            self.progress.pop(key, None)
        self.schedule.discard(key)
        self.unknown = {(epoch, other) for epoch, other in self.unknown if other != key}
        self.held = {rule: [h for h in held if h.key != key] for rule, held in self.held.items()}
        self._take_entry(key)
        self._leave_group(key)
        self._leave_line(key)

    def _recover(self, entry: Waiting, worker: str, new_groups: dict[Group | None, Group]) -> None:
        key, task, run = entry.key, self.tasks[entry.key], self.running.get(entry.key)
        if run and run.worker != worker:
            entry.holder = run.worker
            return
        if run is None:
            self._take_entry(key)
        else:
            self._end_run(key, keep_slots=False)
            self.progress.pop(key, None)
            counts = worker not in self.stopping
            task.losses += counts
            buried = counts and run.alone and task.losses >= MAX_LOSSES
            ending = "cancelled" if run.cancel_asked else "failed" if buried else None
            if ending:
                self._leave_line(key)
                self._finish(key, ending)
                if ending == "failed":
                    self.dead.add(key)
                return
            if counts and task.losses >= SUSPECT_AFTER:
                # Of one group before, or suspects for the first time: they stay together.
                group = new_groups.setdefault(self.groups.get(key), Group())
                group.size += 1
                self._leave_group(key)
                self.groups[key] = group
        self._put(key, "front")

    def _slots(self, limit: str) -> set[str]:
        return self.slots.setdefault(limit, set())

    def _line_up(self, key: str, limits: list[str], rank: int) -> None:
        """Waits for the last of these limits and keeps a slot of those before it."""
        self.tasks[key].location = "line"
        self.parked[key] = tuple(limits)
        for name in limits[:-1]:
            self._slots(name).add(f"task {key}")
        bisect.insort(self.lines.setdefault(limits[-1], []), (rank, key))

    def _leave_line(self, key: str) -> None:
        limits = self.parked.pop(key, ())
        for name in limits:
            self.lines[name] = [(rank, k) for rank, k in self.lines.get(name, []) if k != key]
            self._slots(name).discard(f"task {key}")
        for name in limits:
            self._wake(name)

    def _release(self, run: Run) -> None:
        for limit in run.limits:
            self._slots(limit).discard(f"run {run.epoch}")
            self._wake(limit)

    def _wake(self, limit: str) -> None:
        line = self.lines.setdefault(limit, [])
        while line and len(self._slots(limit)) < self.most[limit]:
            _, key = line.pop(0)
            self._slots(limit).add(f"task {key}")
            self._put(key, "front")

    def _release_replaced_run(self, epoch: int) -> None:
        run = self.replaced_runs.pop(epoch, None)
        if run:
            self._release(run)

    def _release_replaced_runs(self, worker: str) -> None:
        for epoch in [epoch for epoch, run in self.replaced_runs.items() if run.worker == worker]:
            self._release_replaced_run(epoch)

    def _deregister(self, worker: str) -> None:
        self.workers.pop(worker, None)
        self.stopping.discard(worker)
        self.cancel_requests.pop(worker, None)
        self.met = {key: holder for key, holder in self.met.items() if not holder or holder != worker}

    def _known_elsewhere(self, worker: str) -> bool:
        return any("f" in tasks for other, tasks in self.workers.items() if other != worker)
