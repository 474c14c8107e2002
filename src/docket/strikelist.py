"""Rules that block tasks, shared by every process of a docket."""

from __future__ import annotations

from typing import Any


class StrikeList:
    """The rules in effect."""

    def __init__(self, url: str | None = None, name: str = "docket") -> None:
        self.url = url
        self.name = name
        self.is_empty = True

    def is_stricken(self, execution: Any) -> bool:
        return False
