"""Writes the reasons of one task."""

from __future__ import annotations

from typing import Any

from docket.ledger.facts import TaskFacts
from docket.ledger.fleet import worker_name
from docket.model.texts import escaped
from docket.model.times import format_duration, from_ms

from .reasons import Reason, ReasonCode

_LONGEST = 200


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def shortened(text: str) -> str:
    """A user's text in a sentence."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def shown_worker(id: str) -> str:
    """The name of a worker, or its id if that is not one that docket makes."""
    return worker_name(id) or id


class ReasonWriter:
    """The facts about one task, and what all of its reasons have in common."""

    def __init__(self, key: str, facts: TaskFacts) -> None:
        self._facts = facts
        self._now = facts.now_ms
        self._common: dict[str, Any] = {"key": key, "taken": from_ms(facts.now_ms)}

    def _reason(self, code: ReasonCode, sentence: str, **facts: Any) -> Reason:
        return Reason(code=code, sentence=escaped(sentence), **{**self._common, **facts})

    def _for(self, ms: float) -> str:
        """How long something has been so since that time."""
        return format_duration(max(self._now - ms, 0) / 1000)

    def _ago(self, ms: float) -> str:
        return f"{self._for(ms)} ago"
