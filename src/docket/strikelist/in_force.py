"""The strikes that this process applies. They follow the strikes on the server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from docket._aio import Backoff, cancel_and_wait
from docket.errors import TRANSIENT, PayloadRefused, Undecodable
from docket.instrumentation import PAYLOADS_REFUSED, STRIKES_IN_EFFECT
from docket.ledger.rules import StrikeStore
from docket.model.texts import escaped
from docket.storage.client.outages import Outages
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Inquiry, Subscriptions

from .conditions import Index, is_same
from .instructions import Operator, Restore, Strike, StrikeInstruction
from .stored import StoredRules

logger: logging.Logger = logging.getLogger("docket.strikelist")

_SHOWN = 3
_LONGEST_PAUSE = 1.0


class StrikesInForce:
    """The strikes in force. Each change has a version, so that a change that arrives as a reply and
    as a message is applied once.

    `changed` is called after every change.
    """

    def __init__(self, name: str, stored: StoredRules[Strike], changed: Callable[[], None]) -> None:
        self._name = name
        self._stored = stored
        self._changed = changed
        self.by_id: dict[str, Strike] = {}
        self.index: Index = Index()
        # Rules on the server that this process cannot read, and why. They strike nothing here.
        self.unreadable: dict[str, str] = {}
        self._versions: dict[str, int] = {}
        self._loaded_version = 0
        self._changed_while_loading: set[str] | None = None

    def ids(self, instruction: StrikeInstruction) -> tuple[list[str], bytes | None]:
        """The ids of the strikes that an instruction changes,
        and the bytes to store. None removes the strikes."""
        id, stored = self._stored.encode(instruction)
        ids = [id]
        if id not in self.by_id:
            # Equal values may have different bytes (1 and 1.0, or a set in another order).
            ids = [other for other, strike in self.by_id.items() if is_same(strike, instruction)] or ids
        return (ids, None) if isinstance(instruction, Restore) else (ids[:1], stored)

    def update(self, instruction: StrikeInstruction) -> None:
        """Applies an instruction that has no version."""
        ids, _ = self.ids(instruction)
        for id in ids:
            self._set(id, as_strike(instruction))
        self._changed()

    def apply(self, version: int, changes: Iterable[tuple[str, Strike | None]]) -> None:
        """Applies a change of this version. A change of the same or an older version has no effect,
        such as the message about a change that this process has made itself."""
        for id, strike in changes:
            if version <= self._versions.get(id, self._loaded_version):
                continue
            self._versions[id] = version
            if self._changed_while_loading is not None:
                self._changed_while_loading.add(id)
            self._set(id, strike)
        self._changed()

    def receive(self, version: int, changes: Iterable[tuple[str, bytes | None]]) -> None:
        """Applies the changes of another process."""
        self.apply(version, self._open_all(changes))
        if self._changed_while_loading is None:
            # Messages arrive in order, so all older changes have been applied.
            self._versions = {id: known for id, known in self._versions.items() if known > version}
            self._loaded_version = max(self._loaded_version, version)

    @contextmanager
    def loading(self) -> Generator[set[str]]:
        """Collects the ids of the strikes that change while the strikes are read."""
        self._changed_while_loading = changed = set[str]()
        try:
            yield changed
        finally:
            self._changed_while_loading = None

    def replace_all(self, version: int, stored: Mapping[str, bytes], keep: Collection[str] = ()) -> None:
        """Applies the strikes from the server. Ids in `keep` changed while these were read, so this
        process has their newer state."""
        for id in [*self.by_id, *self.unreadable]:
            if id not in stored and id not in keep:
                self.unreadable.pop(id, None)
                self._set(id, None)
        missing = [(id, rule) for id, rule in stored.items() if id not in self.by_id and id not in keep]
        for id, strike in self._open_all(missing):
            self._set(id, strike)
        self._loaded_version = version
        self._versions = {id: known for id, known in self._versions.items() if id in keep}
        self._changed()

    def _open_all(self, rules: Iterable[tuple[str, bytes | None]]) -> list[tuple[str, Strike | None]]:
        """The strikes of these rules. Logs the rules that cannot be read, all in one line."""
        opened: list[tuple[str, Strike | None]] = []
        unreadable: dict[str, str] = {}
        for id, rule in rules:
            strike = None
            if rule is not None:
                try:
                    strike = self._stored.decode(rule)
                except Undecodable as error:
                    unreadable[id] = str(error)
                    if isinstance(error, PayloadRefused) and id not in self.unreadable:
                        labels = {"docket.name": self._name, "docket.where": "strike", "docket.reason": error.reason}
                        PAYLOADS_REFUSED.add(1, labels)
            opened.append((id, strike))
        new = {id: reason for id, reason in unreadable.items() if id not in self.unreadable}
        self._note_unreadable(new)
        for id, _ in opened:
            self.unreadable.pop(id, None)
        self.unreadable.update(unreadable)
        return opened

    def _note_unreadable(self, rules: Mapping[str, str]) -> None:
        if rules:
            shown = "; ".join(f"{escaped(id[:80])}: {escaped(reason)}" for id, reason in list(rules.items())[:_SHOWN])
            logger.error(
                "%d strikes of %s cannot be applied here and are skipped; `docket strikes ls` lists them (%s)",
                len(rules),
                escaped(self._name),
                shown + ("; …" if len(rules) > _SHOWN else ""),
            )

    def _set(self, id: str, strike: Strike | None) -> None:
        before = self.by_id.pop(id, None)
        if before is not None:
            self.index.remove(id, before)
        if strike is not None:
            self.by_id[id] = strike
            self.index.add(id, strike)
        change = (strike is not None) - (before is not None)
        if change:
            STRIKES_IN_EFFECT.add(change, {"docket.name": self._name})


def as_strike(instruction: StrikeInstruction) -> Strike | None:
    """The strike that is in force after the instruction, or None."""
    if isinstance(instruction, Restore):
        return None
    return Strike(instruction.function, instruction.parameter, instruction.operator, instruction.value)


ParameterStrikes = dict[str, set[tuple[Operator, Any]]]


def by_function(strikes: Iterable[Strike]) -> dict[str, ParameterStrikes]:
    """The strikes on single functions. A function that is struck completely has no parameters."""
    found: dict[str, ParameterStrikes] = {}
    for strike in strikes:
        if strike.function is not None:
            _note(found.setdefault(strike.function, {}), strike)
    return found


def by_parameter(strikes: Iterable[Strike]) -> ParameterStrikes:
    """The strikes on a parameter of every function."""
    found: ParameterStrikes = {}
    for strike in strikes:
        if strike.function is None:
            _note(found, strike)
    return found


def _note(parameters: ParameterStrikes, strike: Strike) -> None:
    if strike.parameter is None:
        return
    values = parameters.setdefault(strike.parameter, set())
    try:
        values.add((strike.operator, strike.value))
    except Exception:
        # Leave out a value that cannot be hashed, but keep the parameter.
        return


class StrikeFollower:
    """Loads the strikes, and applies the changes of other processes."""

    def __init__(
        self, name: str, in_force: StrikesInForce, server: Server, subscriptions: Subscriptions, keys: Keys
    ) -> None:
        self._name = name
        self._in_force = in_force
        self._subscriptions = subscriptions
        self.store: StrikeStore = StrikeStore(server, keys)
        self._is_listening = False
        self._loading = asyncio.Lock()
        self._stale, self._loaded, self._tried = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stale.set()
        self._reload = Inquiry(self._stale.set)
        subscriptions.on_gap(self, self._stale.set)
        self._task = asyncio.create_task(self._keep_loaded(server.outages), name=f"{name} - strikes")
        self._task.add_done_callback(_retrieve_exception)

    async def wait_tried(self) -> None:
        """Returns after the first attempt to load the strikes."""
        await self._wait_for(self._tried)

    async def wait_loaded(self) -> None:
        await self._wait_for(self._loaded)

    async def stop(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await cancel_and_wait([self._task], "docket: the strike list closes")
        self._reload.close()
        self._subscriptions.forget_gap(self)
        self._subscriptions.unlisten(self.store.channel, self._on_message)

    async def load(self) -> None:
        """Subscribes first and then reads, so that no change is missed in between."""
        async with self._loading:
            if not self._is_listening:
                await self._subscriptions.listen(self.store.channel, self._on_message)
                self._is_listening = True
            with self._in_force.loading() as changed_ids:
                version, stored = await self.store.read()
            self._in_force.replace_all(version, stored, keep=changed_ids)

    async def discard(self, id: str) -> bool:
        """Removes a rule by its id, whatever it holds. Returns whether there was one."""
        version, changed = await self.store.write([(id, None)])
        if changed:
            self._in_force.receive(version, [(id, None)])
        else:
            await self.load()
        return bool(changed)

    async def _keep_loaded(self, outages: Outages) -> None:
        """Loads the strikes at the start, and again whenever messages may be missing."""
        backoff = Backoff(most=_LONGEST_PAUSE)
        while True:
            await self._stale.wait()
            self._stale.clear()
            try:
                await self.load()
            except TRANSIENT as error:
                outages.failed(self, f"strikes of {self._name} cannot be loaded", error)
                self._stale.set()
                self._tried.set()
                await outages.pause(backoff.next_pause())
            else:
                backoff.reset()
                outages.passed(self)
                self._loaded.set()
                self._tried.set()

    def _on_message(self, message: bytes) -> None:
        """Applies the change of another process. After a message that does not prove where it comes
        from, the rules are read from the server."""
        read = self.store.read_message(message)
        if read is None:
            self._subscriptions.ignored.note("strikes")
            self._reload.request()
        else:
            self._in_force.receive(*read)

    async def _wait_for(self, event: asyncio.Event) -> None:
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait([waiting, self._task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._task.done() and not event.is_set():
            # The task ends only with a permanent error. Raise that error.
            self._task.result()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Marks the exception of the task as retrieved. Callers that wait for strikes raise it; without
    such a caller, asyncio must not log it."""
    if not task.cancelled():
        task.exception()
