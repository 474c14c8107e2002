"""Reads the settings of a docket, and changes them before it is opened."""

from __future__ import annotations

import inspect
from typing import Any

from docket.declaration import setting
from docket.docket import Docket
from docket.errors import NotOpen


def settings_of(docket: Docket) -> dict[str, Any]:
    """The arguments that make a docket like this one."""
    return {name: setting(docket, name) for name in inspect.signature(Docket).parameters}


def change_settings(docket: Docket, **changes: Any) -> None:
    """Changes the settings of a docket that is not open. The object stays the
    same, so code that refers to it sees the change. It keeps its tasks."""
    registry = docket.registry
    Docket.__init__(docket, **{**settings_of(docket), **changes})
    docket.registry = registry


def is_open(docket: Docket) -> bool:
    try:
        docket.ledger  # noqa: B018 - asked for its error
    except NotOpen:
        return False
    return True
