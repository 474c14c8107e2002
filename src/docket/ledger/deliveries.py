"""The steps from a stream entry to a run: entries are delivered to a worker, and the worker claims
them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from docket.model.task_keys import END_SIZE, printed_end
from docket.storage.keys import bytes_text, text_bytes
from docket.storage.schema.requests import ClaimedTask

from .calls import Area
from .tasks import BATCH
from .values import Delivery, Entry, ReservedSlot, SuspectNotes, UnknownEntry, WaitingFunctions

# Two numbers come before the first claimed task in a script's reply.
_FIRST_ROW, _ROW = 2, len(ClaimedTask._fields)
_KEY = b"k"
# A letter, and the beginning of the key.
_SHORT = re.compile(rb"u[0-9a-f]{8}-")


class Deliveries(Area):
    """The deliveries of one docket."""

    async def take(
        self,
        worker: str,
        worker_json: str,
        count: int,
        kept: ReservedSlot | None = None,
        notes: SuspectNotes | None = None,
        *,
        functions: WaitingFunctions | None = None,
        reads_front: bool = True,
    ) -> list[Delivery] | None:
        """Claims up to `count` ready tasks without
        waiting. Returns None if the worker has no lease.

        The slot `kept`, which is reserved for an offer, is not part of `count`. It is also filled,
        unless a direct delivery to it is already on its way. If no task is ready and
        `kept.to_offer` is set, the slot is offered. `kept.answer` says which of these happened.
        Tasks that wait for a worker that knows one of these `functions` come first.
        """
        terms = (0, 0, 0, 0)
        if kept is not None:
            terms = (1, int(kept.offered), kept.last_epoch, self._calls.offer_ms if kept.to_offer else 0)
        secret = kept.secret if kept is not None else b""
        names = [text_bytes(name) for name in functions.names] if functions is not None else False
        mode = 1 if notes is None else notes.mode
        reply = await self._calls.run_script(
            "take", (worker.encode(), worker_json, min(count, BATCH), *terms, int(reads_front), names, mode, secret)
        )
        if kept is not None and reply[0] != -1:
            kept.answer = reply[1]
        if functions is not None and reply[0] != -1:
            functions.left = [bytes_text(name) for name in reply.pop()]
        return self._read_claimed(reply, notes)

    async def claim(
        self,
        worker: str,
        worker_json: str,
        entries: Sequence[Entry],
        notes: SuspectNotes | None = None,
        *,
        gives_up: bool = False,
        runs_suspects: bool = True,
    ) -> list[Delivery] | None:
        """Claims entries that a blocking read delivered. Suspects may be left to other workers.
        With `gives_up` the worker requeues the suspect that it has reserved."""
        rows = [(int(e.from_front), e.id, e.key) for e in entries]
        suspects = 2 if gives_up else notes.mode if notes is not None else int(runs_suspects)
        reply = await self._calls.run_script("claim", (worker.encode(), worker_json, rows, suspects))
        return self._read_claimed(reply, notes)

    async def unknown_deliveries(self, worker: str, epochs: Sequence[int], seen: Sequence[Entry]) -> list[UnknownEntry]:
        """Deliveries of this worker that belong to none of these runs. `seen` has the deliveries
        that the previous call found."""
        rows = [(int(e.from_front), e.id) for e in seen]
        reply = await self._calls.run_script("unknown_deliveries", (worker.encode(), list(epochs), rows))
        return [
            UnknownEntry(bool(front), id.decode(), key, epoch, bool(before)) for front, id, key, epoch, before in reply
        ]

    async def withdraw_offer(self, worker: str) -> bool:
        """Withdraws the offer of a slot, which ends direct delivery
        to this worker. Returns whether there was an offer."""
        offers = text_bytes(self._calls.keys.offers)
        return bool(await self._calls.server.ask(offers, "ZREM", offers, worker.encode()))

    def _read_claimed(self, reply: list[Any], notes: SuspectNotes | None) -> list[Delivery] | None:
        if reply[0] == -1:
            return None
        while (len(reply) - _FIRST_ROW) % _ROW:
            note = reply.pop()
            if isinstance(note, bytes):
                # The version of the pauses that compare arguments.
                for listener in tuple(self._calls.pause_listeners):
                    listener(note)
            elif notes is not None:
                # The script met suspects and added a row about them.
                refused, alone, from_front, id, key, alone_ms = note
                notes.refused, notes.alone, notes.alone_seconds = bool(refused), alone or None, alone_ms / 1000
                notes.reserved = Entry(bool(from_front), id.decode(), key) if id else None
        now = reply[0]
        return [
            Delivery(bytes_text(reply[i]), reply[i + 1], reply[i + 2], now) for i in range(_FIRST_ROW, len(reply), _ROW)
        ]


def entry_key(fields: Sequence[bytes]) -> bytes | None:
    """The key in the fields and values of an entry; None if docket has not written them."""
    name, value = fields[0], fields[1]
    if name == _KEY:
        return value
    if len(value) == END_SIZE and _SHORT.fullmatch(name):
        return name[1:] + printed_end(value).encode()
    return None
