"""The numbers of statistics and history (docs/design/statistics.md, docs/design/history.md)."""

from __future__ import annotations

from docket.model import states
from docket.model.states import KIND_NUMBERS, EndingKind

# Ending kinds that scripts count themselves; all others come from workers.
SUCCEEDED_KIND = KIND_NUMBERS[EndingKind.SUCCEEDED]
CANCELLED_KIND = KIND_NUMBERS[EndingKind.CANCELLED]
BURIED_KIND = KIND_NUMBERS[EndingKind.BURIED]
UNKNOWN_FUNCTION_KIND = KIND_NUMBERS[EndingKind.UNKNOWN_FUNCTION]
LOST_KIND = KIND_NUMBERS[EndingKind.LOST]
LAST_KIND = 31
# The failures of the history.
FAILURE_KINDS = frozenset(KIND_NUMBERS[kind] for kind in states.FAILURE_KINDS)

# A cell is kind * KIND_CELL + bucket of the run time * RUN_CELL + bucket of the waiting time.
KIND_CELL = 4096
RUN_CELL = 64
NO_TIME = 63
NO_TIMES = NO_TIME * RUN_CELL + NO_TIME
# A cell of a kind from here on is not one of a success.
NOT_SUCCEEDED = (SUCCEEDED_KIND + 1) * KIND_CELL
# Without its kind, a cell from here on has no run time.
NO_RUN_TIME = NO_TIME * RUN_CELL

# The keys of a row: the sums of the measures, the entries of the history that the function has in
# this minute, and where the counts of kinds and times begin.
MEASURE_KEYS = states.MEASURE_KEYS
MEASURE_COUNT = len(MEASURE_KEYS)
SAMPLES = 3
FAILURES = 4
KINDS = 16
WAITING_TIMES = 64
SUCCEEDED_RUNS = 128
OTHER_RUNS = 192

# So many functions have rows of their own: of those that a live worker knows, and of all others.
MOST_COUNTED = 256
MOST_UNKNOWN_COUNTED = 64
# Names that have not been counted for so long make room.
FORGOTTEN_MINUTES = 43200
LONGEST_COUNTED_NAME = 256
MINUTE_MS = 60000
HOUR_MINUTES = 60
# Fields of a minute and an hour: the mark, all functions without rows of their own, and the prefix
# of a function.
MARK = "m"
OTHERS = "o"
FUNCTION_FIELD = "f"

# The entries of the history.
ENTRY_VERSION = 1
ENTRY_FIELD = "r"
