"""Where an unfinished task is. Each location has a file in `lua/locations`; the linker writes the
dispatch to the functions of these files (docs/design/state-machine.md)."""

from __future__ import annotations

import enum
from typing import NamedTuple

from docket.model.places import Place

# The numbers in task records: the schedule, the stream, parked (waiting for a limit's slot), the
# front stream, waiting for a worker that knows the function, held by a pause.
SCHEDULED, IN_STREAM, WAITING_FOR_SLOT, IN_FRONT, UNKNOWN_FUNCTION, HELD = range(6)


class Walk(enum.Enum):
    """How pages of tasks are read, and so what their cursors are: SCAN is a hash, in no order and
    without an end within a page; ENTRIES is a stream; SCORES is a sorted set, with a score and a
    name."""

    SCAN = enum.auto()
    ENTRIES = enum.auto()
    SCORES = enum.auto()


class Location(NamedTuple):
    # The name of its constant.
    constant: str
    number: int
    # The file in `lua/locations`, whose functions end with this name.
    file: str
    # Where people see its tasks.
    place: Place
    walk: Walk


# In the sequence of a list of all tasks.
LOCATIONS = (
    Location("IN_FRONT", IN_FRONT, "ready", Place.READY, Walk.ENTRIES),
    Location("IN_STREAM", IN_STREAM, "ready", Place.READY, Walk.ENTRIES),
    Location("WAITING_FOR_SLOT", WAITING_FOR_SLOT, "parked", Place.PARKED, Walk.SCAN),
    Location("UNKNOWN_FUNCTION", UNKNOWN_FUNCTION, "unknown_function", Place.UNKNOWN_FUNCTION, Walk.SCORES),
    Location("HELD", HELD, "held", Place.HELD, Walk.SCAN),
    Location("SCHEDULED", SCHEDULED, "scheduled", Place.SCHEDULED, Walk.SCORES),
)
# A location above is one of a newer release: its workers handle the task, and no script here
# changes its record.
LAST_LOCATION = max(location.number for location in LOCATIONS)
# Sources of tasks that are not locations: all running tasks, all unfinished tasks in no sequence,
# and those of them that are queued, wherever they are.
RUNNING_TASKS, EVERY_TASK, QUEUED_TASKS = 253, 254, 255

FILES = tuple(dict.fromkeys(location.file for location in LOCATIONS))
# The functions that a file may define, with their parameters. `leave_location(key, task)` calls
# `leave_held(key, task)`.
FUNCTIONS = {
    # Removes the task from there.
    "leave": "key, task",
    # Whether an ordinary path reaches the task. `last_ids` is a table for what many tasks share.
    "is_reachable": "key, task, last_ids",
    # Reads a page of its tasks (parts/listing.lua). The only one that gets the location.
    "list": "at, page",
    # Notes facts for `docket why`.
    "explain": "key, task, why",
}
# The files with `count_<file>()`: the sequence of the counts that `count_locations()` returns. All
# other unfinished tasks run or are ready.
COUNTED = tuple(file for file in FILES if file != "ready")
PLACES = {location.file: location.place for location in LOCATIONS}


def functions(files: dict[str, frozenset[str]]) -> str:
    """The part that calls the functions of the location of a task. `files` are the names that each
    file defines."""
    uses = ", ".join(f"locations/{file}" for file in FILES)
    lines = ["-- Calls the functions of a location.", f"-- uses: {uses}"]
    for verb, parameters in FUNCTIONS.items():
        lines.append(f"local function {verb}_location({parameters})")
        if not parameters.startswith("at"):
            lines.append("  local at = task.location")
        for file in FILES:
            if f"{verb}_{file}" in files[file]:
                numbers = " or ".join(f"at == {location.constant}" for location in LOCATIONS if location.file == file)
                lines += [f"  if {numbers} then", "    --- parts", f"    return {verb}_{file}({parameters})", "  end"]
        lines.append("end")
    counts = ", ".join(f"count_{file}()" for file in COUNTED)
    lines += ["local function count_locations()", f"  return {{{counts}}}", "end"]
    return "\n".join(lines) + "\n"
