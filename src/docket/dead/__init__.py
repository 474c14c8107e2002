"""Dead letters: the tasks of a docket that failed for good (docs/dead-letters.md)."""

from .dead_letters import DeadLetters
from .filters import LetterFilter
from .letter import Letter, LetterReason
from .overview import BuriedTask, Kind, Overview
from .pages import LetterPage
from .reports import Report

__all__ = [
    "BuriedTask",
    "DeadLetters",
    "Kind",
    "Letter",
    "LetterFilter",
    "LetterPage",
    "LetterReason",
    "Overview",
    "Report",
]
