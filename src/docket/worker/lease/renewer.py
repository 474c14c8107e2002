"""Renews the worker's lease from a thread of its own, so that the worker keeps its lease while code
blocks the event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import random
import threading
from collections.abc import Callable
from typing import Any

from docket._aio import Backoff
from docket.errors import DocketError, NotOpen
from docket.ledger import Ledger, Renewal
from docket.ledger.calls import OFFER_MS
from docket.storage.client.faults import SERVER_ERRORS, is_cut_off
from docket.worker.fleet.duties import Duties

from .lease import SHORTEST_PATIENCE, Lease, ServerClock, steady_seconds
from .lease_events import LeaseEvents
from .reclaimer import Reclaimer, Sweeper
from .watchdog import Watchdog

LONGEST_PAUSE = 1.0
# The worker repeats an offer after this share of the offer's lifetime.
OFFER_AGAIN_AT = 0.35
# A renewal carries a report if the last one is as old as this. An idle worker has less to report.
REPORT_SECONDS, IDLE_REPORT_SECONDS = 5.0, 20.0
# The longest time for which the thread may delay the exit of the interpreter.
EXIT_SECONDS = 1.0


class Renewer:
    """The renewal thread of one worker id. The reclaimer,
    the sweeper and the watchdog run in this thread, too."""

    def __init__(
        self,
        ledger: Ledger,
        lease: Lease,
        events: LeaseEvents,
        name: str,
        labels: dict[str, str],
        server_clock: ServerClock,
        duties: Duties,
    ) -> None:
        self._ledger = ledger
        self._lease = lease
        self._events = events
        self._server_clock = server_clock
        self._loop = asyncio.get_running_loop()
        self._client: Any = None
        self._stopping = threading.Event()
        self.watchdog: Watchdog = Watchdog(ledger, lease, self._connected, events, self._call_in_loop)
        self._reclaimer = Reclaimer(
            ledger, lease, self._connected, duties, labels, self._renew_meanwhile, self._call_in_loop, self._stopping
        )
        self._sweeper = Sweeper(ledger, self._connected, duties)
        self._next_offer = steady_seconds()
        self._reported_at = -math.inf
        self._backoff = Backoff(first=0.05, most=min(1.0, lease.interval))
        self._wake = threading.Condition()
        self._renewal_requested = False
        self._is_failing = False
        # Set when the event loop is gone: then only this
        # thread can take the worker out of the fleet.
        self._abandoned = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._ledger.server.outages.on_answer.add(self._after_outage)
        self._thread.start()
        # For an interpreter that exits while the worker runs.
        atexit.register(self.abandon)

    async def stop(self, patience: float | None = None) -> None:
        """Returns when the thread has ended, or after `patience` seconds. In the second case the
        thread ends once its request is answered."""
        self._request_stop()
        if self._thread.is_alive():
            ended, _ = await asyncio.wait([self._ended], timeout=patience)
            if ended:
                self._thread.join()
            else:
                # The exit of the interpreter must not wait for the thread either.
                atexit.unregister(self.abandon)

    def abandon(self) -> None:
        """The event loop is gone: the thread takes the worker out of the fleet and ends. Waits for
        that for a limited time. A forked child has no such thread."""
        if self._thread.is_alive():
            self._abandoned = True
            self._request_stop()
            self._thread.join(EXIT_SECONDS)

    def _request_stop(self) -> None:
        with self._wake:
            self._stopping.set()
            self._wake.notify()

    def renew_now(self) -> None:
        """Asks for a renewal as soon as possible."""
        with self._wake:
            self._renewal_requested = True
            self._wake.notify()

    def _after_outage(self) -> None:
        """The server has answered somebody: if the last renewal failed, the next one is due. After
        an outage no worker may be late."""
        if self._is_failing:
            self.renew_now()

    # In the thread

    def _run(self) -> None:
        try:
            self._keep_lease()
            if self._abandoned:
                self._leave()
        finally:
            self._ledger.server.outages.on_answer.discard(self._after_outage)
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
            self._ledger.fleet.leave_blocking(self._connected(), self._lease.worker)

    def _keep_lease(self) -> None:
        next_at = steady_seconds()
        # The first interval is random, so that workers that start together do not renew together.
        interval = self._lease.interval * random.uniform(0.5, 1.0)
        while not self._stopping.is_set():
            self._renewal_requested = False
            try:
                if steady_seconds() >= next_at:
                    self._renew_and_reclaim()
                    next_at, interval = steady_seconds() + interval, self._lease.interval
                self._sweeper.step()
                self.watchdog.step()
                self._backoff.reset()
                self._is_failing = False
                self._ledger.server.outages.passed(self)
                pause = max(min(next_at, self._sweeper.due_at) - steady_seconds(), 0.0)
                pause = min(pause, LONGEST_PAUSE)
            except Exception as error:
                # Survive every error: without this thread the worker would lose its lease.
                self._failed(error)
                next_at = steady_seconds()
                pause = min(self._backoff.next_pause(), max(self._lease.left, SHORTEST_PATIENCE))
            self.watchdog.ping()
            with self._wake:
                if not self._renewal_requested and not self._stopping.is_set():
                    self._wake.wait(pause)
                if self._renewal_requested:
                    next_at = 0.0

    def _renew_and_reclaim(self) -> None:
        """The answer to a renewal also reports leases
        that have ended and tasks that are overdue."""
        if not self.watchdog.loop_may_continue():
            if self.watchdog.loop_is_closed:
                self._abandon()
            return
        renewal = self._renew()
        if renewal.lost or not renewal.is_registered:
            return
        if renewal.staging_is_due:
            self._call_in_loop(self._events.staging_is_due)
        self._reclaimer.step(renewal)

    def _renew_meanwhile(self) -> bool:
        renewal = self._renew()
        return renewal.is_registered and not renewal.lost

    def _renew(self) -> Renewal:
        sent_at, lease = steady_seconds(), self._lease
        runs, has_offer, stopping, _ = self._events.activity()
        # A blocked event loop cannot start a delivery, so its offer is left to expire.
        has_offer = has_offer and sent_at >= self._next_offer and self.watchdog.loop_lag < lease.interval
        has_report = sent_at - self._reported_at >= (REPORT_SECONDS if runs else IDLE_REPORT_SECONDS)
        renewal = self._ledger.fleet.renew(
            self._connected(),
            lease.worker,
            lease.length_ms,
            lease.late_ms,
            busy=runs > 0,
            has_offer=has_offer,
            stopping=stopping,
            report=self._events.report(self.watchdog.recent_lag) if has_report else None,
        )
        if has_report:
            self._reported_at = sent_at
        # Noted here and not in the event loop, which may be blocked when the answer arrives.
        self._server_clock.note(renewal.server_ms, steady_seconds() - sent_at)
        if has_offer:
            self._next_offer = sent_at + OFFER_MS / 1000 * OFFER_AGAIN_AT
        if renewal.lost:
            lease.lost()
            self._call_in_loop(self._events.lost)
            return renewal
        lease.renewed(sent_at)
        if not renewal.is_registered:
            self._call_in_loop(self._events.unregistered)
        self._call_in_loop(self._events.renewed, renewal)
        return renewal

    def _failed(self, error: Exception) -> None:
        self._close_client()
        if isinstance(error, NotOpen):
            # The docket was closed, so the worker no longer needs a lease.
            self._stopping.set()
            return
        self._is_failing = True
        self._ledger.server.outages.failed(self, "renewing", error)
        if self._lease.left <= 0 and is_cut_off(error):
            self._call_in_loop(self._events.cut_off)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = self._ledger.server.threaded_client(self._lease.patience, self._ledger.keys.stream)
        return self._client

    def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*SERVER_ERRORS):
                client.close()

    def _call_in_loop(self, callback: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._abandon()

    def _abandon(self) -> None:
        """The event loop is closed, so the worker no longer needs a lease."""
        self._abandoned = True
        self._stopping.set()
