"""The settings that a child gets from its worker's process: paths, log levels, and the docket."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import cloudpickle  # pyright: ignore[reportMissingTypeStubs] - it ships none

from docket.docket import Docket
from docket.settings import settings_of
from docket.storage.client.urls import ServerKind
from docket.storage.server import Server

_dumps: Callable[[Any], bytes] = cast(Any, cloudpickle).dumps


@dataclass(slots=True)
class ChildSettings:
    """Sent to a child once, when it starts."""

    path: list[str]
    levels: dict[str, int]
    # The arguments of the docket, each pickled.
    docket: dict[str, bytes]
    worker: str
    # The labels of the worker's metrics.
    labels: dict[str, str]

    def make_docket(self) -> Docket:
        return Docket(**{name: pickle.loads(value) for name, value in self.docket.items()})


def settings_for(docket: Docket, worker: str, labels: dict[str, str]) -> ChildSettings:
    return ChildSettings(list(sys.path), _log_levels(), _arguments(docket), worker, labels)


def _log_levels() -> dict[str, int]:
    """The levels of all loggers that have one of their own. The root logger has the name ''."""
    manager = logging.getLogger().manager
    named = {name: logger for name, logger in manager.loggerDict.items() if isinstance(logger, logging.Logger)}
    return {name: logger.level for name, logger in {"": logging.getLogger(), **named}.items() if logger.level}


def _arguments(docket: Docket) -> dict[str, bytes]:
    """The arguments that make a docket like this one. An argument that cannot be pickled, such as a
    credential provider with an open connection, is left out: the child then has the default."""
    arguments: dict[str, bytes] = {}
    for name, value in {**settings_of(docket), "url": _url_for_child(docket.server)}.items():
        try:
            arguments[name] = _dumps(value)
        except Exception:
            logging.getLogger("docket.worker").warning(
                "children have no %s of the docket, because it cannot be pickled", name
            )
    return arguments


def _url_for_child(server: Server) -> str:
    """A `memory://` of the child's own would be another server."""
    if server.address.kind is ServerKind.MEMORY and "path" in server.address.options:
        return f"unix://{server.address.options['path']}?db={server.database}"
    return server.url
