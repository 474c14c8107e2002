"""The names of dockets in URLs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docket.docket import Docket

# What follows the root of the dashboard and is not a docket.
RESERVED = ("api", "assets")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")


def by_segment(dockets: Sequence[Docket]) -> dict[str, Docket]:
    """The dockets by one segment of a path each. A docket's name may contain anything, and two
    dockets on different servers may have the same."""
    found: dict[str, Docket] = {}
    for docket in dockets:
        plain = _UNSAFE.sub("-", docket.name).strip("-") or "docket"
        segment, number = plain, 2
        while segment in found or segment in RESERVED:
            segment, number = f"{plain}-{number}", number + 1
        found[segment] = docket
    return found
