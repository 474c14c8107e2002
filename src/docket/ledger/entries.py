"""The task key in a stream entry (docs/design/key-layout.md, Stream entries)."""

from __future__ import annotations

from collections.abc import Sequence

from docket.model.task_keys import BEGINNING_SIZE, END_SIZE, printed_end

_KEY, _SHORT = b"k", b"u"
_SHORT_SIZE = len(_SHORT) + BEGINNING_SIZE


def entry_key(fields: Sequence[bytes]) -> bytes | None:
    """The key in the fields and values of an entry; None if docket has not written them."""
    name, value = fields[0], fields[1]
    if name == _KEY:
        return value
    if len(name) == _SHORT_SIZE and len(value) == END_SIZE and name.startswith(_SHORT):
        return name[len(_SHORT) :] + printed_end(value).encode()
    return None
