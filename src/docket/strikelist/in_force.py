"""The strikes that this process applies. They follow the strikes on the server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager

from docket.errors import Undecodable
from docket.instrumentation import STRIKES_IN_EFFECT
from docket.ledger.strike_store import read_message

from .conditions import Index, is_same
from .instructions import Restore, Strike, StrikeInstruction, decode, encode

logger: logging.Logger = logging.getLogger("docket.strikelist")


class StrikesInForce:
    """The strikes in force. Each change has a version, so that a change that arrives as a reply and
    as a message is applied once.

    `changed` is called after every change.
    """

    def __init__(self, name: str, changed: Callable[[], None]) -> None:
        self._name = name
        self._changed = changed
        self.by_id: dict[str, Strike] = {}
        self.index: Index = Index()
        self._versions: dict[str, int] = {}
        self._loaded_version = 0
        self._changed_while_loading: set[str] | None = None

    def ids(self, instruction: StrikeInstruction) -> tuple[list[str], bytes | None]:
        """The ids of the strikes that an instruction changes,
        and the bytes to store. None removes the strikes."""
        id, stored = encode(instruction)
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

    def receive(self, message: bytes) -> None:
        """Applies the changes of another process."""
        version, changes = read_message(message)
        self.apply(version, [(id, None if stored is None else self._open(stored)) for id, stored in changes])
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
        for id in list(self.by_id):
            if id not in stored and id not in keep:
                self._set(id, None)
        for id, data in stored.items():
            if id not in self.by_id and id not in keep:
                self._set(id, self._open(data))
        self._loaded_version = version
        self._versions = {id: known for id, known in self._versions.items() if id in keep}
        self._changed()

    def _open(self, stored: bytes) -> Strike | None:
        try:
            return decode(stored).open()
        except Undecodable as error:
            logger.error("a strike of %s cannot be applied here: %s", self._name, error)
            return None

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
