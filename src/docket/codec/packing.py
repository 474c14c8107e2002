"""msgpack, typed: for what scripts read and for what only Python reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs] - it ships none

_library = cast(Any, msgpack)

# Lua's cmsgpack knows raw strings only, so bytes are
# packed as such for scripts. Safe in any thread.
pack_for_script: Callable[[Any], bytes] = partial(_library.packb, use_bin_type=False)
pack: Callable[[Any], bytes] = _library.packb
unpack: Callable[[bytes], Any] = _library.unpackb
# Reads what was packed for scripts: strings come back as bytes.
unpack_from_script: Callable[[bytes], Any] = partial(_library.unpackb, raw=True)


def script_packer() -> Callable[[Any], bytes]:
    """pack_for_script for one thread, with a buffer that is
    used again. Two threads would mix their bytes in it."""
    return _library.Packer(use_bin_type=False, autoreset=True).pack
