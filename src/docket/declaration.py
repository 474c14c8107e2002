"""Tells the workers which settings this producer has (docs/design/settings.md)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from docket._aio import cancel_and_wait
from docket.errors import DocketError
from docket.instrumentation import suppress_traces
from docket.ledger import Ledger
from docket.ledger.fleet import PRODUCER, Declaration
from docket.model.times import duration_ms

from .model.retention import Keep

if TYPE_CHECKING:
    from docket.docket import Docket

EVERY_SECONDS = 300.0


def setting(docket: Docket, name: str) -> Any:
    """The present value of a setting."""
    declared = docket.declared.get(name)
    return attrgetter((declared and declared.option.attribute) or name)(docket)


def shared_settings(docket: Docket) -> dict[str, Any]:
    """The settings that must agree, as JSON values."""
    shared = {name: setting(docket, name) for name, option in docket.declared.items() if option.option.must_agree}
    # Its default depends on another setting, so processes compare the value in force.
    shared["keep_failures"] = docket.keep_failures
    return {name: _as_json(value) for name, value in shared.items()}


def _as_json(value: Any) -> Any:
    if isinstance(value, timedelta):
        return duration_ms(value)
    if isinstance(value, Keep):
        return [value.age_ms, value.letters, value.size]
    return value if value is None or isinstance(value, str | int | float) else type(value).__qualname__


class SettingsDeclaration:
    """Declares a producer's settings when it schedules its first task, and at intervals after that.

    Uses a timer instead of an endless task, so that nothing is left
    if the event loop is closed while the docket is open.
    """

    def __init__(self, docket: Docket, ledger: Ledger) -> None:
        self._ledger = ledger
        self._own = Declaration(PRODUCER, f"{socket.gethostname()}#{os.getpid()}", shared_settings(docket))
        self._timer: asyncio.TimerHandle | None = None
        self._call: asyncio.Task[None] | None = None
        self.begun: bool = False

    def begin(self) -> None:
        """Declares now, in the background, and again after EVERY_SECONDS."""
        self.begun = True
        loop = asyncio.get_running_loop()
        self._call = loop.create_task(self._declare(), name=f"{self._ledger.server.name} - declaring settings")
        self._timer = loop.call_later(EVERY_SECONDS, self.begin)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._call is not None:
            await cancel_and_wait([self._call], "docket: the docket closes")

    async def _declare(self) -> None:
        suppress_traces()
        # Ignore errors here: if the server is unreachable, the user's own calls report it.
        with contextlib.suppress(DocketError):
            await self._ledger.fleet.declare_settings(self._own)
