"""Drives a ledger on a real server and the model
side by side, with what Hypothesis comes up with."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from docket.ledger import (
    Delivery,
    Entry,
    NewTask,
    ProgressChange,
    SettleResult,
    SuspectNotes,
    WaitingFunctions,
    as_retry,
    hold,
    requeue,
    reschedule,
    unknown_function,
)
from docket.ledger.payloads import Payload, call_payload
from docket.model.states import ExecutionState
from docket.model.task_keys import key_end
from docket.storage.keys import text_bytes
from docket.storage.server import Server

from .comparison import adopt, adopt_front_order, assert_same
from .invariants import GROUP, problems
from .ledger_client import LedgerClient, blocking_client, completed, ended, generated_key, new_call, new_ledger
from .model import Ending, Limits, Model, ModelTask

# Few, so that they collide; and none that is nice.
KEYS = ["a", "b:%", "", "\udc00*"]
WORKERS_AT_ONCE, DYING_AT_ONCE = 3, 4

# How often each is tried, so that most steps move a task and enough of them go wrong.
WEIGHTS = {
    "enqueue": 10,
    "enqueue_new": 1,
    "repeat": 1,
    "first_request_comes_last": 1,
    "take": 10,
    "acquire": 5,
    "settle": 5,
    "stage": 4,
    "claim": 3,
    "pause": 2,
    "resume": 2,
    "release": 2,
    "die": 2,
    "read": 2,
    "cancel": 2,
    "hire": 2,
    "leave": 1,
    "reclaim": 1,
    "renew": 1,
    "stop": 1,
    "wait_for_suspects": 1,
    "give_up_reserved": 1,
    "progress": 1,
    "adopt_unknown": 1,
    "sweep": 1,
    "destroy_group": 1,
    "clear": 1,
    "come_too_late": 1,
    "look_around": 1,
    "lose_rule": 1,
}
ACTIONS = [action for action, weight in WEIGHTS.items() for _ in range(weight)]

new_tasks = st.builds(
    ModelTask,
    st.sampled_from(KEYS),
    st.binary(max_size=3),
    later=st.sampled_from([False, False, True]),
    replace=st.sampled_from([False, False, True]),
)
# Mostly one slot of A and two of B, sometimes a deploy that changed its mind.
wanted_limits = st.sampled_from(
    [
        (("A", 1),),
        (("A", 1),),
        (("B", 2),),
        (("A", 1), ("B", 2)),
        (("B", 2), ("A", 1)),
        (("A", 2),),
        (("B", 1), ("A", 2)),
    ]
)
counts = st.integers(1, 3)
# The whole docket, a function, another function, and an argument, which only workers judge.
RULES = ["*", "=f", "=g", "0" * 40]
rules = st.sampled_from(RULES)


class Bench:
    """One server and one event loop, on which one example after the other begins with nothing."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._server = Server(url)
        self.run(self._server.__aenter__())
        self._client = blocking_client(self._server)

    def run(self, awaitable: Any) -> Any:
        return self._runner.run(awaitable)

    def begin(self) -> LedgerClient:
        self._client.flushdb()
        return LedgerClient(new_ledger(self._server), self._client)

    def close(self) -> None:
        self._client.close()
        self.run(self._server.__aexit__())
        self._runner.close()


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench
        self.ledger_client = bench.begin()
        self.model = Model()
        self.runs: list[Delivery] = []
        self.unclaimed: dict[str, list[Entry]] = {}
        self.group_was_lost = False
        self.last_epoch = 0
        self.generated = 0
        # Keys of calls whose repeat has arrived, and whose first request has not.
        self.late: list[str] = []
        self.stored_state = self.ledger_client.stored_state()
        self._draw: Any = None

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        self._draw = data.draw
        action = data.draw(st.sampled_from([a for a in ACTIONS if self._makes_sense(a)]))
        getattr(self, action)()

    @initialize(tasks=st.lists(new_tasks, max_size=6), workers=st.integers(1, 2))
    def open_up(self, tasks: list[ModelTask], workers: int) -> None:
        for _ in range(workers):
            self._hire("f")
        self._enqueue(tasks)

    def _makes_sense(self, action: str) -> bool:
        match action:
            case "give_up_reserved":
                return bool(self.stored_state.suspects.reserved)
            case "wait_for_suspects":
                return bool(self.stored_state.suspects.met)
            case "take" | "read" | "renew" | "stop" | "die" | "adopt_unknown":
                return bool(self.model.workers)
            case "first_request_comes_last":
                return bool(self.late)
            case "hire":
                return len(self.model.workers) < WORKERS_AT_ONCE
            case "leave":
                return bool(self.model.workers) and len(self.model.dying) < DYING_AT_ONCE
            case "come_too_late":
                return bool(self.stored_state.lost) and len(self.model.dying) < DYING_AT_ONCE
            case "stage":
                return bool(self.model.schedule)
            case "claim":
                return bool(self.unclaimed)
            case "release" | "lose_rule":
                return bool(self.model.pauses)
            case "settle" | "acquire" | "progress":
                return bool(self.runs)
            case _:
                return True

    @invariant()
    def the_stored_state_is_sound_and_that_of_the_model(self) -> None:
        self.stored_state = self.ledger_client.stored_state()
        found = problems(self.stored_state, group_was_lost=self.group_was_lost)
        assert not found, found
        assert self.stored_state.epoch >= self.last_epoch
        assert_same(self.model, self.stored_state)

    # Producers

    def enqueue(self) -> None:
        self._enqueue(self._draw(st.lists(new_tasks, min_size=1, max_size=3)))

    def _enqueue(self, calls: list[ModelTask]) -> None:
        later = self.ledger_client.later()
        new_tasks = [self._new_task(c, later) for c in calls]
        results = self._run(self.ledger_client.ledger.tasks.enqueue(new_tasks))
        assert [(r.scheduled, r.generation) for r in results] == self.model.enqueue(calls)

    def enqueue_new(self) -> None:
        """Calls in bulk, with keys that docket has generated."""
        later, values, calls = self.ledger_client.later(), list[Any](), list[ModelTask]()
        for is_later in self._draw(st.lists(st.booleans(), min_size=1, max_size=2)):
            calls.append(ModelTask(self._generated_key(), b"", later=is_later, replace=False))
            values += new_call(calls[-1].key, later if is_later else -later)
        now, stored_before = self._run(self.ledger_client.ledger.tasks.enqueue_new(values))
        assert not stored_before
        assert abs(now - self.ledger_client.now()) < 3_600_000
        assert self.model.enqueue(calls) == [(True, 1)] * len(calls)

    def _generated_key(self) -> str:
        self.generated += 1
        return generated_key(self.generated)

    def repeat(self) -> None:
        """The first request of a call is kept by the network, and its repeat arrives."""
        call = ModelTask(self._generated_key(), b"", later=self._draw(st.booleans()), replace=False)
        task = self._new_task(call, self.ledger_client.later())
        task.unanswered = True
        (result,) = self._run(self.ledger_client.ledger.tasks.enqueue([task]))
        assert [(result.scheduled, result.generation)] == self.model.enqueue([call])
        self.late.append(call.key)

    def first_request_comes_last(self) -> None:
        """Nothing changes, whatever has become of the task."""
        key = self._draw(st.sampled_from(self.late))
        if self._draw(st.booleans()):
            values = new_call(key, -self.ledger_client.later())
            _, stored_before = self._run(self.ledger_client.ledger.tasks.enqueue_new(values))
            assert list(stored_before) == [0]
        else:
            replace = self._draw(st.booleans())
            task = NewTask(key, "f", b"", fresh=True, replace=replace, key_end=key_end(key))
            (result,) = self._run(self.ledger_client.ledger.tasks.enqueue([task]))
            assert not result.scheduled

    def _new_task(self, new: ModelTask, later: float) -> NewTask:
        payload = self._stored_apart(new.call)
        call = new.call if payload is None else payload.reference
        due_ms = later if new.later else 0
        return NewTask(new.key, "f", call, due_ms=due_ms, replace=new.replace, payload=payload)

    def _stored_apart(self, call: bytes | None) -> Payload | None:
        """Every other call is stored apart, as large ones are."""
        if call is None or len(call) % 2 == 0:
            return None
        payload = call_payload(call)
        self._run(self.ledger_client.ledger.payloads.store(payload))
        return payload

    def cancel(self) -> None:
        key = self._draw(st.sampled_from(KEYS))
        assert self._run(self.ledger_client.ledger.tasks.cancel(key)) == self.model.cancel(key)

    def clear(self) -> None:
        assert self._run(self.ledger_client.ledger.tasks.clear()) == self.model.clear()
        adopt_front_order(self.model, self.ledger_client.stored_state())

    def stage(self) -> None:
        due = self._draw(st.lists(st.sampled_from(sorted(self.model.schedule)), min_size=1, unique=True))
        # The other tasks must not fall due meanwhile. A
        # suspect waits for a second of real time only.
        later = self.ledger_client.later()
        due_times = {key: due.index(key) if key in due else later for key in self.model.schedule}
        self.ledger_client.client.zadd(
            self.ledger_client.ledger.keys.schedule, {text_bytes(key): ms for key, ms in due_times.items()}, xx=True
        )
        assert self._run(self.ledger_client.ledger.tasks.stage(10))[0] == len(due)
        self.model.stage(due)

    # Operators

    def pause(self) -> None:
        id = self._draw(rules)
        stored = self._run(self.ledger_client.ledger.pauses.store(id, b"rule"))
        assert stored is not None
        assert stored.held == len(self.model.held.get(id, ()))
        self.model.pause(id)

    def resume(self) -> None:
        id, most = self._draw(rules), self._draw(counts)
        assert self._run(self.ledger_client.ledger.pauses.resume(id, most)) == self.model.resume(id, most)

    def release(self) -> None:
        id, most = self._draw(st.sampled_from(sorted(self.model.pauses))), self._draw(counts)
        released = self._run(self.ledger_client.ledger.pauses.release(id, most))
        assert (released.moved, released.left) == self.model.release(id, most)

    def lose_rule(self) -> None:
        """Somebody deletes a rule. The sweep finds the tasks that it held."""
        id = self._draw(st.sampled_from(sorted(self.model.pauses)))
        self.ledger_client.client.hdel(self.ledger_client.ledger.keys.key("pauses"), id)
        del self.model.pauses[id]
        if not self.model.pauses:
            self.ledger_client.client.delete(self.ledger_client.ledger.keys.key("pauses"))
            self.model.rounds = 0

    # Workers

    def hire(self) -> None:
        self._hire(*self._draw(st.sampled_from([("f",), ("f", "g"), ("g",)])))

    def _hire(self, *tasks: str) -> None:
        self.model.register(self._run(self.ledger_client.hire(*tasks)), set(tasks))

    def take(self) -> None:
        worker, count, wanted = self._worker(), self._draw(counts), self._draw(st.none() | wanted_limits)
        functions = self._draw(st.none() | st.builds(WaitingFunctions, st.sampled_from([["f"], ["f", "g"]])))
        notes = SuspectNotes()
        deliveries = self._run(
            self.ledger_client.ledger.deliveries.take(worker, '"w"', count, None, notes, functions=functions)
        )
        self._run(self.ledger_client.isolate(worker, deliveries, notes))
        self._ask_who_reserved()
        self._accept(self.model.take(worker, count, with_unknown=functions is not None), deliveries)
        if functions is not None:
            assert functions.left == (["f"] if self.model.unknown else [])
        for delivery in deliveries if wanted else ():
            self._acquire(delivery, wanted)

    def read(self) -> None:
        self._read(self._worker(), self._draw(counts))

    def _read(self, worker: str, count: int) -> None:
        for stream in ("stream", "front"):
            if not self.stored_state.streams[stream].has_group:
                self.ledger_client.client.xgroup_create(
                    self.ledger_client.ledger.keys.key(stream), GROUP, "0", mkstream=True
                )
        entries = self.ledger_client.read(worker, count)
        expected = self.model.deliver(worker, [("front", count), ("stream", count)])
        assert [e.id for e in entries] == [e.id for e in expected]
        # The worker may read an entry again, if the group was lost meanwhile. It claims it once.
        unclaimed = self.unclaimed.pop(worker, [])
        unclaimed += [entry for entry in entries if entry not in unclaimed]
        if unclaimed:
            self.unclaimed[worker] = unclaimed

    def claim(self) -> None:
        worker = self._draw(st.sampled_from(sorted(self.unclaimed)))
        once = self._draw(st.booleans())
        entries = self.unclaimed.pop(worker) if once else self.unclaimed[worker]
        self._claim(worker, entries)

    def adopt_unknown(self) -> None:
        """After a lost answer: the worker claims what the server says it has."""
        worker = self._worker()
        entries = self._run(self.ledger_client.ledger.deliveries.unknown_deliveries(worker, [], []))
        held = [e.id for stream in ("stream", "front") for e in self.model.streams[stream] if e.holder == worker]
        assert [e.id for e in entries] == held
        self._claim(worker, entries)

    def _claim(self, worker: str, entries: list[Any], *, gives_up: bool = False) -> None:
        deliveries = self._run(self.ledger_client.claim(worker, entries, gives_up=gives_up))
        self._ask_who_reserved()
        places = [("front" if e.from_front else "stream", e.id) for e in entries]
        self._accept(self.model.claim(worker, places, gives_up=gives_up), deliveries)

    def _ask_who_reserved(self) -> None:
        """It depends on how long busy workers have met the suspect."""
        reserved = self.ledger_client.stored_state().suspects.reserved
        self.model.reserves = lambda worker, key: reserved.get(worker) == key

    def wait_for_suspects(self) -> None:
        """As if busy workers had met them long ago."""
        suspects = self.ledger_client.ledger.keys.key("suspects")
        for key, worker in self.stored_state.suspects.met.items():
            if not worker:
                self.ledger_client.client.hset(suspects, b"m" + text_bytes(key), "1")

    def give_up_reserved(self) -> None:
        worker, key = self._draw(st.sampled_from(sorted(self.stored_state.suspects.reserved.items())))
        entries = [
            e
            for e in self._run(self.ledger_client.ledger.deliveries.unknown_deliveries(worker, [], []))
            if e.key == text_bytes(key)
        ]
        self._claim(worker, entries, gives_up=True)
        self.ledger_client.client.hdel(self.ledger_client.ledger.keys.key("suspects"), "b" + worker)

    def _accept(self, expected: list[str] | None, deliveries: list[Delivery] | None) -> None:
        if expected is None:
            assert deliveries is None
            return
        assert deliveries is not None
        assert [d.key for d in deliveries] == expected
        for delivery in deliveries:
            run = self.model.running[delivery.key]
            if run.epoch == 0:
                assert delivery.epoch > self.last_epoch
                self.last_epoch = run.epoch = delivery.epoch
                self.runs.append(delivery)
            assert delivery.epoch == run.epoch

    def settle(self) -> None:
        endings = [self._ending(self._any_run()) for _ in range(self._draw(counts))]
        answers = self._run(self.ledger_client.settle(*(self._settlement(e) for e in endings)))
        expected = [SettleResult[answer.upper()] for answer in self.model.settle(endings)]
        assert answers == expected, (answers, expected)

    def _ending(self, run: Delivery) -> Ending:
        kind = self._draw(st.sampled_from(["finish", "reschedule", "requeue", "unknown", "hold"]))
        if kind == "finish":
            state, dead = self._draw(st.sampled_from([("completed", False), ("failed", False), ("failed", True)]))
            return Ending(run.key, run.epoch, kind, state=state, dead_letter=dead)
        later = self._draw(st.booleans())
        if kind == "reschedule":
            call = self._draw(st.none() | st.binary(min_size=1, max_size=3))
            return Ending(run.key, run.epoch, kind, later=later, call=call, is_retry=self._draw(st.booleans()))
        if kind == "unknown":
            return Ending(run.key, run.epoch, kind, only_if_known=self._draw(st.booleans()))
        if kind == "hold":
            return Ending(run.key, run.epoch, kind, rule=self._draw(rules))
        return Ending(run.key, run.epoch, kind, later=later)

    def _settlement(self, ending: Ending) -> Any:
        run = Delivery(ending.key, b"", ending.epoch)
        delay = 3_600_000 if ending.later else 0
        if ending.kind == "finish":
            return ended(run, ExecutionState(ending.state), dead_letter=ending.dead_letter)
        if ending.kind == "requeue":
            return requeue(run.key, run.epoch, delay_ms=delay)
        if ending.kind == "unknown":
            return unknown_function(run.key, run.epoch, only_if_known=ending.only_if_known)
        if ending.kind == "hold":
            return hold(run.key, run.epoch, ending.rule)
        task = self.model.tasks.get(ending.key)
        attempt = task.attempt + 1 if task else 2
        name, payload = "f" if ending.call else None, self._stored_apart(ending.call)
        settlement = reschedule(
            run.key,
            run.epoch,
            attempt=attempt,
            delay_ms=delay,
            function_name=name,
            call=ending.call,
            payload=payload,
        )
        return as_retry(settlement, attempt - 1, "w", "ValueError: smoke") if ending.is_retry else settlement

    def acquire(self) -> None:
        self._acquire(self._any_run(), self._draw(wanted_limits))

    def _acquire(self, run: Delivery, wanted: Limits) -> None:
        answer = self._run(self.ledger_client.acquire(run.key, run.epoch, wanted))
        assert ["lost", "acquired", "parked"][answer] == self.model.acquire(run.key, run.epoch, wanted)
        adopt_front_order(self.model, self.ledger_client.stored_state())

    def progress(self) -> None:
        run, amount = self._any_run(), self._draw(st.integers(1, 9))
        (answer,) = self._run(
            self.ledger_client.ledger.tasks.progress([ProgressChange(run.key, run.epoch, add=amount)])
        )
        assert isinstance(answer, bytes) == self.model.write_progress(run.key, run.epoch, answer)

    def renew(self) -> None:
        worker = self._worker()
        renewal = self.ledger_client.renew(worker)
        assert not renewal.lost
        assert renewal.is_registered
        assert renewal.cancel_requests == self.model.renew(worker)

    def stop(self) -> None:
        worker = self._worker()
        assert not self.ledger_client.renew(worker, stopping=True).lost
        self.model.renew(worker)
        self.model.stop(worker)

    # The end of workers, and what the others do about it

    def leave(self) -> None:
        worker = self._worker()
        assert self._run(self.ledger_client.ledger.fleet.leave(worker)) == self.model.leave(worker)

    def die(self) -> None:
        worker = self._worker()
        self.ledger_client.end_lease(worker)
        self.model.expire(worker)
        self.reclaim()

    def come_too_late(self) -> None:
        """A worker that was given up wakes: its blocking
        read was answered, and it knows nothing yet."""
        worker = self._draw(st.sampled_from(sorted(self.stored_state.lost)))
        assert self._run(self.ledger_client.ledger.deliveries.take(worker, '"w"', 1)) is None
        if self._draw(st.booleans()):
            self._read(worker, 1)
        assert self.ledger_client.renew(worker).lost

    def reclaim(self) -> None:
        consumers = self.stored_state.consumers
        dead = self.model.dying | (consumers - set(self.model.workers))
        unfinished, finished = set(self.model.tasks), dict(self.model.finished)
        while self.ledger_client.reclaim()[4]:
            pass
        self.model.reclaim(consumers)
        if len(dead) > 1 and self.group_was_lost:
            # The dead are taken in any order, and here one may hold what another runs.
            adopt(self.model, self.ledger_client.stored_state())
            assert unfinished == set(self.model.tasks) | (set(self.model.finished) - set(finished))
        elif len(dead) > 1:
            adopt_front_order(self.model, self.ledger_client.stored_state())

    def sweep(self) -> None:
        assert self.ledger_client.sweep() == self.model.sweep()
        adopt_front_order(self.model, self.ledger_client.stored_state())

    def destroy_group(self) -> None:
        stream = self._draw(st.sampled_from(["stream", "front"]))
        if self.stored_state.streams[stream].has_group:
            self.ledger_client.client.xgroup_destroy(self.ledger_client.ledger.keys.key(stream), GROUP)
            self.model.destroy_group(stream)
            self.group_was_lost = True

    def look_around(self) -> None:
        census = self._run(self.ledger_client.ledger.queries.census())
        assert census.unfinished == len(self.model.tasks)
        assert census.running == len(self.model.running)
        assert census.scheduled == len(self.model.schedule)
        assert census.dead == len(self.model.dead)
        assert census.held == sum(len(held) for held in self.model.held.values())
        assert {row.id for row in self._run(self.ledger_client.ledger.fleet.workers())} == set(self.model.workers)
        pages = self._run(self._pages())
        assert {row.key for row in pages} == set(self.model.tasks)
        assert {row.key: row.run.epoch for row in pages if row.run} == {
            key: run.epoch for key, run in self.model.running.items()
        }

    # The end

    def teardown(self) -> None:
        """Everything can be brought to an end, and then nothing is left but what should be."""
        unfinished = set(self.model.tasks)
        for worker in list(self.model.workers):
            self.ledger_client.end_lease(worker)
        while any(self.ledger_client.reclaim()):
            pass
        worker = self._run(self.ledger_client.hire())
        for id in RULES:
            self._run(self.ledger_client.ledger.pauses.store(id, b"rule"))
            self._run(self.ledger_client.ledger.pauses.resume(id, 1))
        for _ in range(100):
            for id in RULES:
                self._run(self.ledger_client.ledger.pauses.release(id))
            self.ledger_client.fall_due(*self.ledger_client.stored_state().schedule)
            self._run(self.ledger_client.ledger.tasks.stage())
            runs = self._run(
                self.ledger_client.ledger.deliveries.take(worker, '"w"', 100, functions=WaitingFunctions(["f"]))
            )
            self._run(self.ledger_client.settle(*(completed(run) for run in runs)))
            self.ledger_client.reclaim()
            if not self._run(self.ledger_client.ledger.queries.unfinished()):
                break
        self._run(self.ledger_client.ledger.fleet.leave(worker))
        self.ledger_client.reclaim()
        stored_state = self.ledger_client.checked_state(group_was_lost=self.group_was_lost)
        assert stored_state.leftovers == set()
        assert unfinished <= set(stored_state.finished)

    def _run(self, awaitable: Any) -> Any:
        return self._bench.run(awaitable)

    async def _pages(self) -> list[Any]:
        return [row async for page in self.ledger_client.ledger.queries.all() for row in page]

    def _worker(self) -> str:
        return self._draw(st.sampled_from(sorted(self.model.workers)))

    def _any_run(self) -> Delivery:
        """Mostly one that counts, sometimes one that does not any more."""
        epochs = {run.epoch for run in self.model.running.values()}
        current = [run for run in self.runs if run.epoch in epochs]
        stale = self._draw(st.sampled_from([False, False, False, True]))
        return self._draw(st.sampled_from(current if current and not stale else self.runs))
