"""The times of chains, computed from what workers declared."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from docket.dependencies.cron import Cron

from .function_views import FunctionDeclaration, as_declaration


def following_run(declared: dict[str, Any], due: datetime, now: datetime) -> datetime | None:
    """The run after the one that is due then, as the function is declared: the next time of its
    cron expression, or an interval later. None if the declaration does not say it."""
    if not declared:
        return None
    declaration = as_declaration(declared)
    if declaration.cron is not None:
        return _next_cron(declaration, due)
    if declaration.every:
        return _after(due, declaration.every, now)
    return None


def _next_cron(declaration: FunctionDeclaration, due: datetime) -> datetime | None:
    zone = _zone(declaration.timezone)
    if zone is None or declaration.cron is None:
        return None
    try:
        return Cron(declaration.cron, tz=zone).slot_after(due).astimezone(UTC)
    except (ValueError, OverflowError):
        # Anybody may have written the expression.
        return None


def _zone(name: str | None) -> tzinfo | None:
    if name in (None, "UTC"):
        return UTC
    try:
        return ZoneInfo(str(name))
    except (KeyError, ValueError, OSError):
        return None


def _after(due: datetime, every: timedelta, now: datetime) -> datetime | None:
    try:
        return max(due, now) + every
    except OverflowError:
        return None
