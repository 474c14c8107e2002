"""msgpack, typed: for what scripts read and for what only Python reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgpack  # pyright: ignore[reportMissingTypeStubs] - it ships none

_library = cast(Any, msgpack)

# Lua's cmsgpack knows raw strings only, so bytes are packed as such for scripts.
pack_for_script: Callable[[Any], bytes] = _library.Packer(use_bin_type=False, autoreset=True).pack
pack: Callable[[Any], bytes] = _library.packb
unpack: Callable[[bytes], Any] = _library.unpackb
# Reads what was packed for scripts: strings come back as bytes.
unpack_from_script: Callable[[bytes], Any] = partial(_library.unpackb, raw=True)
