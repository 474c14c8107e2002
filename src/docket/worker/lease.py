"""Keeps the worker's lease from a thread of its own, so that code that blocks the event loop cannot lose it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import random
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from docket._aio import Backoff
from docket.errors import DocketError, NotOpen
from docket.instrumentation import TASKS_CANCELLED, TASKS_COMPLETED, TASKS_FAILED
from docket.ledger import Ledger, Reclaimed, Renewal
from docket.ledger.ledger import OFFER_MS
from docket.storage.faults import SERVER_ERRORS, is_cut_off

from .duties import Duties
from .server_clock import ServerClock, steady_seconds

logger: logging.Logger = logging.getLogger("docket.worker")

# However slow the heart beats: so often a worker looks for others that are lost.
LONGEST_BEAT = 5.0
# A renewal that comes later than this, in beats, was held up.
LATE = 1.5
# The leader looks for what nothing called for.
INSPECT_EVERY = 60.0
CONSUMERS_AT_ONCE = 100
SWEEP_PAGE = 200
SWEEP_EVERY, SWEEP_EVERY_WHEN_EMPTY = 10.0, 30.0
LOOK_AT_LOOP_EVERY = 1.0
# An event loop that owes an answer for so long is not counted on for the next tasks.
LOOP_BLOCKED_SECONDS = 0.5
# So long a loop that does not run may stand still between two calls of run_until_complete.
LEAST_WAIT_FOR_LOOP = 2.0
# How long the interpreter may be kept from its exit.
EXIT_SECONDS = 1.0


@dataclass(slots=True)
class LeaseEvents:
    """What the keeper tells the worker; each is called in the event loop."""

    renewed: Callable[[Renewal], None]
    lost: Callable[[], None]
    cut_off: Callable[[], None]
    off_roster: Callable[[], None]
    staging_is_due: Callable[[], None]


class Occupation(NamedTuple):
    """What a worker is at: how much it runs, whether it has offered a slot and was told to stop, and on which connection it
    waits for work."""

    runs: int
    offering: bool
    stopping: bool
    reading: int | None = None


# A share of the life of an offer.
OFFER_AGAIN_AT = 0.35
# A share of the lease, and seconds.
CUT_OFF_AT = 0.9
SHORTEST_PATIENCE = 0.25


class LeaseKeeper:
    """Renews the lease, hands orders over, looks for workers that lost theirs when told to, and sweeps if this worker leads.

    It also notices when the event loop does not turn, and says which code holds it up.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        lease_ms: int,
        beat: float,
        occupation: Callable[[], Occupation],
        events: LeaseEvents,
        name: str,
        labels: dict[str, str],
        server_clock: ServerClock,
        duties: Duties,
    ) -> None:
        self._labels = labels
        self._server_clock = server_clock
        self._duties = duties
        self._ledger = ledger
        self._worker = worker
        self._lease_ms = lease_ms
        self._beat = min(beat, lease_ms / 3000, LONGEST_BEAT)
        self._occupation = occupation
        self._next_offer = steady_seconds()
        self._late_ms = int(max(lease_ms / 3, self._beat * LATE * 1000))
        self._next_inspection = self._next_sweep = steady_seconds()
        self._events = events
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._wake = threading.Condition()
        self._stopping = self._asked = False
        # The event loop is gone: nobody but this thread can take the worker off the roster.
        self._abandoned = False
        self._loop_ran_at = self._renewed_at = steady_seconds()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._client: Any = None
        self._backoff = Backoff(first=0.05, most=min(1.0, self._beat))
        # For how long the lease has been kept; an outage counts for half a lease at most.
        self.kept_seconds: float = 0.0
        self._loop_asked_at: float | None = None
        self._loop_blocked_told = False
        self.block_threshold: float = 2.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        # The interpreter may exit while the worker runs.
        atexit.register(self.abandon)

    async def stop(self, patience: float | None = None) -> None:
        """Returns when the thread has ended. If that takes too long, it ends by itself once its call is answered."""
        self._tell_to_stop()
        if self._thread.is_alive():
            ended, _ = await asyncio.wait([self._ended], timeout=patience)
            if ended:
                self._thread.join()
            else:
                # An exit of the interpreter does not wait for it either.
                atexit.unregister(self.abandon)

    def abandon(self) -> None:
        """The event loop is gone: the thread takes the worker off the roster and ends, which is waited for a moment. In a
        forked child there is no such thread."""
        if self._thread.is_alive():
            self._abandoned = True
            self._tell_to_stop()
            self._thread.join(EXIT_SECONDS)

    def _tell_to_stop(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def renew_now(self) -> None:
        """Asks for a renewal as soon as possible."""
        with self._wake:
            self._asked = True
            self._wake.notify()

    @property
    def age(self) -> float:
        """Seconds since the last renewal was sent that the server has answered."""
        return steady_seconds() - self._renewed_at

    @property
    def lapsed(self) -> bool:
        return self.age * 1000 > self._lease_ms

    @property
    def loop_lag(self) -> float:
        """How long the event loop has owed an answer, in seconds, as seen from outside."""
        asked_at = self._loop_asked_at
        return 0.0 if asked_at is None else steady_seconds() - asked_at

    def _run(self) -> None:
        try:
            self._keep()
            if self._abandoned:
                self._leave()
        finally:
            self._ledger.server.outages.forget(self)
            self._close_client()
            atexit.unregister(self.abandon)
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._note_end)

    def _note_end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _leave(self) -> None:
        with contextlib.suppress(DocketError, *SERVER_ERRORS):
            self._ledger.leave_blocking(self._connected(), self._worker)

    def _keep(self) -> None:
        next_beat = steady_seconds()
        self._next_sweep = next_beat + SWEEP_EVERY
        # Workers that start together do not renew together.
        beat = self._beat * random.uniform(0.5, 1.0)
        while not self._stopping:
            self._asked = False
            try:
                if steady_seconds() >= next_beat:
                    if self._loop_may_go_on():
                        self._renew_and_look()
                    next_beat, beat = steady_seconds() + beat, self._beat
                if steady_seconds() >= self._next_sweep:
                    self._sweep()
                if self.loop_lag > LOOP_BLOCKED_SECONDS:
                    self._release_unread()
                self._backoff.reset()
                self._ledger.server.outages.passed(self)
                pause = max(min(next_beat, self._next_sweep) - steady_seconds(), 0.0)
                pause = min(pause, LOOK_AT_LOOP_EVERY)
            except Exception as error:
                # Whatever it is: a lease that nobody keeps is worse.
                self._failed(error)
                next_beat = steady_seconds()
                pause = min(self._backoff.next_pause(), max(self._left, SHORTEST_PATIENCE))
            self._watch_loop()
            with self._wake:
                if not self._asked and not self._stopping:
                    self._wake.wait(pause)
                if self._asked:
                    next_beat = 0.0

    def _loop_may_go_on(self) -> bool:
        """A lease without an event loop that could use it is nobody's. A loop that is blocked runs all the same."""
        if self._loop.is_running():
            self._loop_ran_at = steady_seconds()
        elif self._loop.is_closed():
            self._abandoned = self._stopping = True
            return False
        return steady_seconds() - self._loop_ran_at < max(self._lease_ms / 1000, LEAST_WAIT_FOR_LOOP)

    def _renew_and_look(self) -> None:
        """The renewal brings word of leases that have ended and of tasks that nobody stages. The leader looks now and then
        without being told."""
        renewal = self._renew()
        if renewal.lost or not renewal.on_roster:
            return
        if renewal.staging_is_due:
            self._tell(self._events.staging_is_due)
        inspects = self._duties.leads and steady_seconds() >= self._next_inspection
        if inspects:
            self._ledger.inspect(self._connected())
            self._next_inspection = steady_seconds() + INSPECT_EVERY
        if inspects or renewal.reclaiming_is_due:
            self._reclaim(look=inspects)

    def _renew(self) -> Renewal:
        sent_at = steady_seconds()
        runs, offering, stopping, _ = self._occupation()
        # Not of one that could not keep it: while the event loop is blocked an offer runs out.
        offering = offering and sent_at >= self._next_offer and self.loop_lag < self._beat
        renewal = self._ledger.renew(
            self._connected(),
            self._worker,
            self._lease_ms,
            self._late_ms,
            busy=runs > 0,
            offering=offering,
            stopping=stopping,
        )
        # Here and not in the event loop, which may be blocked when the answer comes.
        self._server_clock.note(renewal.server_ms, steady_seconds() - sent_at)
        if offering:
            self._next_offer = sent_at + OFFER_MS / 1000 * OFFER_AGAIN_AT
        if renewal.lost:
            # As lapsed from now on: nothing may start under this lease.
            self._renewed_at = -math.inf
            self._tell(self._events.lost)
            return renewal
        self.kept_seconds += min(sent_at - self._renewed_at, self._lease_ms / 2000)
        self._renewed_at = sent_at
        if not renewal.on_roster:
            self._tell(self._events.off_roster)
        self._tell(self._events.renewed, renewal)
        return renewal

    def _reclaim(self, *, look: bool) -> None:
        """Goes on until nothing is left to declare or recover; meanwhile the lease is kept. With `look`, consumers of workers
        that are gone are looked for, too."""
        total = Reclaimed()
        try:
            self._reclaim_all(total, look=look)
        finally:
            self._report(total)

    def _reclaim_all(self, total: Reclaimed, *, look: bool) -> None:
        consumers = self._ledger.consumers_without_lease(self._connected()) if look else []
        while not self._stopping:
            step = self._ledger.reclaim(
                self._connected(),
                self._worker,
                self._lease_ms,
                self._late_ms,
                willing=self._duties.willing,
                consumers=consumers[:CONSUMERS_AT_ONCE],
            )
            total.add(step)
            if step.duty is not self._duties.duty and self._duties.willing:
                self._tell(self._duties.assign, step.duty)
            consumers = consumers[CONSUMERS_AT_ONCE:]
            if step.look_for_consumers and not look:
                look, consumers = True, self._ledger.consumers_without_lease(self._connected())
            if not step.left and not consumers:
                return
            if self.age >= self._beat:
                renewal = self._renew()
                if renewal.lost or not renewal.on_roster:
                    return

    def _report(self, total: Reclaimed) -> None:
        if total.declared or total.put_back or total.buried or total.cancelled:
            logger.warning(
                "reclaiming: %d worker(s) lost; %d task(s) put back, %d buried, %d cancelled",
                total.declared, total.put_back, total.buried, total.cancelled,
            )  # fmt: skip
        if total.buried:
            TASKS_COMPLETED.add(total.buried, self._labels)
            TASKS_FAILED.add(total.buried, self._labels)
        if total.cancelled:
            TASKS_CANCELLED.add(total.cancelled, self._labels)

    def _release_unread(self) -> None:
        """The event loop is blocked: what the server has sent and nobody here reads goes to other workers, and no more is sent."""
        runs, _, _, reading = self._occupation()
        released = self._ledger.release_unread(self._connected(), self._worker, runs, reading)
        if released:
            logger.warning("the event loop is blocked: %d task(s) that it has not read go to other workers", released)

    def _sweep(self) -> None:
        if not self._duties.leads:
            self._next_sweep = steady_seconds() + SWEEP_EVERY
            return
        looked_at, mended = self._ledger.sweep(self._connected(), SWEEP_PAGE, int(SWEEP_EVERY * 900))
        self._next_sweep = steady_seconds() + (SWEEP_EVERY if looked_at else SWEEP_EVERY_WHEN_EMPTY)
        if mended:
            logger.warning("sweeping: %d task(s) were out of place and have been put back", mended)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._ledger.server.threaded_client(self._patience, self._ledger.keys.stream)
        return self._client

    def _patience(self) -> float:
        """While there is a lease to lose, no attempt outlasts it."""
        usual = min(5.0, max(self._lease_ms / 3000, 0.5))
        return max(min(usual, self._left), SHORTEST_PATIENCE) if self._left > 0 else usual

    @property
    def _left(self) -> float:
        """Seconds until our work would be given up if we are cut off: a little before others may start it."""
        return self._lease_ms / 1000 * CUT_OFF_AT - self.age

    def _failed(self, error: Exception) -> None:
        self._close_client()
        if isinstance(error, NotOpen):
            # The docket was closed: there is nobody left to keep a lease for.
            self._stopping = True
            return
        self._ledger.server.outages.failed(self, "renewing", error)
        if self._left <= 0 and is_cut_off(error):
            self._tell(self._events.cut_off)

    def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                client.close()

    def _tell(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            # The loop is closed: there is nobody left to keep a lease for.
            self._abandoned = self._stopping = True

    def _watch_loop(self) -> None:
        if self._loop_asked_at is None:
            self._loop_asked_at = steady_seconds()
            self._tell(self._loop_turned)
        elif self.loop_lag > self.block_threshold and not self._loop_blocked_told:
            self._loop_blocked_told = True
            frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "(no stack)"
            logger.warning(
                "the event loop has been blocked for %.1f s: no other task can run meanwhile. Blocking code:\n%s",
                self.loop_lag,
                stack,
            )

    def _loop_turned(self) -> None:
        self._loop_asked_at = None
        self._loop_blocked_told = False


def lease_length_ms(redelivery_timeout_ms: int, heartbeat_ms: int, missed: int) -> int:
    """The lease ends with the redelivery time-out or the heartbeat time-out, whichever is sooner."""
    return max(min(redelivery_timeout_ms, heartbeat_ms * missed), 100)
