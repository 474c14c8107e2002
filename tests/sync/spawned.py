"""The work of a spawned process."""

from __future__ import annotations

from datetime import timedelta

from docket.sync import Docket

from .tasks import double


def add_one(docket: Docket, key: str) -> None:
    assert not docket.is_open
    docket.add(double, when=docket.now() + timedelta(hours=1), key=key)(1)
