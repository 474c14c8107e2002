# ruff: noqa: F401, F821, RUF100
"""Names that snippets take for granted on every page."""

import os
import sys
import types
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

from docket import (
    Agenda,
    ConcurrencyLimit,
    Cooldown,
    Cron,
    CurrentExecution,
    Debounce,
    Depends,
    Docket,
    ExecutionCancelled,
    Keep,
    NotDurable,
    Perpetual,
    Progress,
    RateLimit,
    Retry,
    StrikeList,
    Timeout,
    Worker,
)


async def send_mail(to: str = "", customer: str = "", region: str = "") -> None: ...


async def charge(customer: int = 0, amount: float = 0) -> int:
    return customer


def make_module(name: str, **names: Any) -> None:
    """A module of the user, as the page imports it."""
    parent, _, child = name.rpartition(".")
    module = types.ModuleType(name)
    vars(module).update(names)
    sys.modules[name] = module
    if parent:
        sys.modules.setdefault(parent, types.ModuleType(parent))
        setattr(sys.modules[parent], child, module)


make_module("shop")
make_module("shop.tasks", send_welcome=send_mail)
make_module("shop.mail", send_mail=send_mail)
os.environ.setdefault("REDIS_URL", "memory://page-cli")
