"""The task key in a stream entry (docs/design/key-layout.md, Stream entries)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docket.model.task_keys import END_SIZE, printed_end

_KEY = b"k"
# A letter, and the beginning of the key.
_SHORT = re.compile(rb"u[0-9a-f]{8}-")


def entry_key(fields: Sequence[bytes]) -> bytes | None:
    """The key in the fields and values of an entry; None if docket has not written them."""
    name, value = fields[0], fields[1]
    if name == _KEY:
        return value
    if len(value) == END_SIZE and _SHORT.fullmatch(name):
        return name[1:] + printed_end(value).encode()
    return None
