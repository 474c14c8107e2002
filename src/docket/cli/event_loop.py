"""Chooses the event loop."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections.abc import Callable


def has_uvloop() -> bool:
    return importlib.util.find_spec("uvloop") is not None


def loop_factory(wanted: bool | None = None) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's factory if uvloop is installed and not switched off, else None."""
    if wanted is False or not has_uvloop():
        return None
    return importlib.import_module("uvloop").new_event_loop
