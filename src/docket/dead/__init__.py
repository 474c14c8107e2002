"""Dead letters: the tasks of a docket that failed for good (docs/dead-letters.md)."""

from .batches import Report
from .dead_letters import DeadLetters
from .filters import LetterFilter
from .letter import BuriedTask, Kind, Letter, LetterPage, LetterReason, Overview

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
