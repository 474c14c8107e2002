"""Typed msgpack functions, for data that scripts read and for data that only Python reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs] - it ships none

_library = cast(Any, msgpack)

# Lua's cmsgpack knows only raw strings, so bytes are
# packed as raw strings for scripts. Safe in any thread.
pack_for_script: Callable[[Any], bytes] = partial(_library.packb, use_bin_type=False)
pack: Callable[[Any], bytes] = _library.packb
unpack: Callable[[bytes], Any] = _library.unpackb
# Reads data that was packed for scripts. Strings become bytes.
unpack_from_script: Callable[[bytes], Any] = partial(_library.unpackb, raw=True)
# Reads a map of numbers that a script has packed.
unpack_row: Callable[[bytes], Any] = partial(_library.unpackb, raw=True, strict_map_key=False)


def script_packer() -> Callable[[Any], bytes]:
    """pack_for_script with a reused buffer. It is for one thread only, because two threads would
    mix their bytes in the buffer."""
    return _library.Packer(use_bin_type=False, autoreset=True).pack
