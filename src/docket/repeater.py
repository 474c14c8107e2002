"""Sends calls again that could not be written down, where a repeat cannot make two tasks of one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from docket._aio import Backoff
from docket.errors import ServerUnreachable
from docket.ledger import EnqueueResult, NewTask
from docket.storage.faults import ServerGone, ServerSilent

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.4
# By so much finished records have to outlast the
# repeats: a request may arrive after it was given up.
_SPARE_SECONDS = 5.0


Connect = Callable[[], Awaitable[None]]
Send = Callable[[Sequence[NewTask]], Awaitable[Sequence[EnqueueResult]]]


class Repeater:
    """Repeats for at most `patience` seconds, as far as that is safe.

    It is safe while nothing was sent or the server refused for a passing reason. After a lost
    answer it is safe only for a call with a made-up key: the script then takes a task or a finished
    record of that key for this very call. The record has to outlast the repeat, so there is none
    where `ttl_ms` is shorter.
    """

    def __init__(self, patience: float, ttl_ms: int, connect: Connect) -> None:
        self._patience = patience
        self._connect = connect
        self._records_last = ttl_ms / 1000 >= patience + _SPARE_SECONDS

    async def repeat(
        self, send: Send, orders: Sequence[NewTask], error: ServerUnreachable
    ) -> list[EnqueueResult | Exception]:
        """What became of each call after all."""
        answers: dict[int, EnqueueResult | Exception] = {}
        left = list(range(len(orders)))
        made_up = [order.fresh for order in orders]
        deadline = time.monotonic() + self._patience
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while left:
            for at in left if error.maybe_stored else ():
                orders[at].unanswered = True
            now = time.monotonic()
            until = {at: self._until(orders[at], made_up[at], deadline) for at in left}
            answers |= {at: told(error, orders[at].unanswered) for at in left if until[at] <= now}
            left = [at for at in left if at not in answers]
            if not left:
                break
            last = min(until[at] for at in left)
            for at in left:
                # The caller may have sent the same call again meanwhile, so the key is looked up.
                orders[at].fresh = False
            await asyncio.sleep(min(backoff.next_pause(), last - now))
            try:
                receipts = await self._attempt(send, [orders[at] for at in left], last)
            except ServerUnreachable as problem:
                error = problem
            except Exception as problem:
                # Refused for good; that says nothing about an attempt whose answer was lost.
                lost = told(ServerGone(str(problem)), maybe_stored=True)
                answers |= {at: lost if orders[at].unanswered else problem for at in left}
                break
            else:
                answers |= dict(zip(left, receipts, strict=True))
                break
        return [answers[at] for at in range(len(orders))]

    async def _attempt(self, send: Send, orders: Sequence[NewTask], last: float) -> Sequence[EnqueueResult]:
        """Connects first: an attempt that ends before there is a connection has stored nothing."""
        seconds = max(last - time.monotonic(), _FIRST_PAUSE)
        may_be_sent = False
        try:
            async with asyncio.timeout(seconds):
                await self._connect()
                may_be_sent = True
                return await send(orders)
        except TimeoutError:
            error = ServerSilent(f"no answer within {seconds:.1f} s")
            error.maybe_stored = may_be_sent
            raise error from None

    def _until(self, order: NewTask, made_up: bool, deadline: float) -> float:
        """Until when the call may be sent again."""
        is_safe = not order.unanswered or (made_up and not order.replace and self._records_last)
        return deadline if is_safe else 0.0


class StoreTries:
    """When a large value may be stored again, and how patiently: none
    begins later than so many seconds after the first failed. The link
    may be slow, so each may take twice as long as the one before."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.patience: float = 1.0

    async def another(self, connect: Connect) -> bool:
        """After a pause; False if it is too late, also to connect."""
        now = time.monotonic()
        if self._until is None:
            self._until = now + self._seconds
        if now >= self._until:
            return False
        await asyncio.sleep(min(self._backoff.next_pause(), self._until - now))
        self.patience *= 2
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._until - time.monotonic()):
                await connect()
        except (ServerSilent, TimeoutError):
            return False
        except ServerUnreachable:
            # Refused: a later attempt may find it back.
            return True
        return True


def told(error: ServerUnreachable, maybe_stored: bool) -> ServerUnreachable:
    """The error for one caller, with the truth about its task."""
    truth = "its answer was lost, so the task may be stored" if maybe_stored else "nothing was stored"
    copied = type(error)(f"{error} ({truth})")
    copied.maybe_stored = maybe_stored
    copied.__cause__ = error
    return copied
