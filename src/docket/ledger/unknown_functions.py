"""Functions whose tasks wait for a worker that knows them."""

from __future__ import annotations

from dataclasses import dataclass

from docket.storage.keys import text_bytes

from .endings import Ending
from .ledger import Ledger
from .letter_notes import NOT_REGISTERED, DeathCause, script_note

# The most functions in a reply, and the most tasks that one script call ends.
_MOST_FUNCTIONS = 1000
_MOST_TASKS = 100


@dataclass(slots=True)
class UnknownFunction:
    """A function whose tasks wait for a worker that knows it: since when, and how many. `is_known`
    means that a live worker knows the function but has no free slot yet."""

    name: str
    since_ms: float
    tasks: int
    is_known: bool


async def unknown_functions(ledger: Ledger) -> list[UnknownFunction]:
    reply = await ledger.ask("unknown_functions", (_MOST_FUNCTIONS,))
    return [
        UnknownFunction(name.decode("utf-8", "backslashreplace"), float(since), tasks, bool(known))
        for name, since, tasks, known in reply
    ]


async def fail_unknown(ledger: Ledger, function: str, ending: Ending, event: str) -> int:
    """Fails tasks of a function that no live worker knows. Returns their number: 0 if a live worker
    knows the function or no task waits."""
    note = script_note(ledger.keep, DeathCause.FAILED, NOT_REGISTERED, ending.error or "")
    return await ledger.ask(
        "fail_unknown", (text_bytes(function), ledger.ttl_ms, ending.pack(), event, _MOST_TASKS, note.row())
    )
