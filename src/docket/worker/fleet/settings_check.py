"""Warns of settings that differ between the processes of one docket (docs/design/settings.md)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from docket.declaration import shared_settings
from docket.docket import Docket
from docket.errors import TRANSIENT
from docket.ledger.fleet import WORKER, Declaration
from docket.model.options import EVERYWHERE
from docket.worker.service import Service

from .duties import Duties

logger: logging.Logger = logging.getLogger("docket.worker")

EVERY_SECONDS = 30.0


class SettingsCheck(Service):
    """Every worker compares its settings when it starts.
    After that, the leader compares at intervals."""

    name = "comparing settings"

    def __init__(self, docket: Docket, worker: str, duties: Duties, labels: dict[str, str], most_pause: float) -> None:
        super().__init__(labels, most_pause)
        self._docket = docket
        self._own = Declaration(WORKER, worker, shared_settings(docket))
        self._duties = duties
        self._reported: set[tuple[str, str]] = set()

    async def begin(self) -> None:
        """Compares before the worker starts. If the
        server is unreachable, a later step compares."""
        try:
            await self.compare()
        except TRANSIENT as error:
            logger.debug("settings are not compared yet: %s", error)

    async def step(self) -> None:
        await asyncio.sleep(EVERY_SECONDS)
        if self._duties.leads:
            await self.compare()

    async def compare(self) -> None:
        for other in await self._docket.ledger.fleet.declare_settings(self._own):
            for name, own, theirs in self._differences(other):
                if (name, repr(theirs)) not in self._reported:
                    self._reported.add((name, repr(theirs)))
                    self._report(other, name, own, theirs)

    def _differences(self, other: Declaration) -> Iterator[tuple[str, Any, Any]]:
        for name, own in self._own.settings.items():
            # A process of an older release does not declare settings that it does not know.
            # Only workers use some settings, so a producer may have other values.
            is_compared = other.role == WORKER or self._docket.declared[name].option.must_agree == EVERYWHERE
            if is_compared and other.settings.get(name, own) != own:
                yield name, own, other.settings[name]

    def _report(self, other: Declaration, name: str, own: Any, theirs: Any) -> None:
        logger.warning(
            "docket %r: %s is %s here and %s at %s %s, but it must be the same everywhere. "
            "Take both from one Docket (docket worker --app module:docket), or set it with --%s",
            self._docket.name,
            name,
            self._in_words(name, own),
            self._in_words(name, theirs),
            other.role,
            other.process,
            name.replace("_", "-"),
            extra=self._labels,
        )

    def _in_words(self, name: str, value: Any) -> str:
        if self._docket.declared[name].type is timedelta and isinstance(value, (int, float)):
            return f"{value / 1000:g}s"
        return "the server" if name == "result_storage" and value is None else str(value)
