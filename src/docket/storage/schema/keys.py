"""All keys of a docket, by the names that scripts have for
them. docs/design/key-layout.md says what is in each."""

from __future__ import annotations

from typing import Literal, NamedTuple

Type = Literal["string", "hash", "list", "set", "zset", "stream", "any"]


class Key(NamedTuple):
    """The name after the docket's prefix, and the type. The name of a family ends with `:=`: what
    follows is a user's text."""

    name: str
    type: Type

    @property
    def is_family(self) -> bool:
        return self.name.endswith(":=")

    @property
    def family(self) -> str:
        return self.name.removesuffix(":=")


GROUP = "docket-workers"

STREAM = Key("stream", "stream")
# Not "queue": pydocket keeps its scheduled tasks there (docs/design/foreign-tasks.md).
SCHEDULE = Key("scheduled", "zset")
TASKS = Key("tasks", "hash")
RUNNING = Key("running", "hash")
REPEATED = Key("repeated", "zset")
REPLACED_RUNS = Key("replaced-runs", "hash")
PROGRESS = Key("progress", "hash")
LEASES = Key("leases", "zset")
LOST = Key("lost", "zset")
DYING = Key("dying", "set")
SUSPECTS = Key("suspects", "hash")
ALONE_WORKERS = Key("alone", "hash")
STOPPING = Key("stopping", "set")
MAX_LOSSES = Key("max-losses", "hash")
EPOCH = Key("epoch", "string")
DEAD = Key("dead", "zset")
DEAD_RECORDS = Key("dead-records", "hash")
LIMITS = Key("limits", "hash")
PARKED = Key("parked", "hash")
SLOTS = Key("slots:=", "set")
WAITERS = Key("waiters:=", "zset")
CANCEL_REQUESTS = Key("cancel-requests:=", "list")
WORKER_TASKS = Key("worker-tasks:=", "set")
TASK_WORKERS = Key("task-workers:=", "set")
RUNS = Key("runs:=", "string")
FAILED_ATTEMPTS = Key("failed-attempts:=", "string")
FRONT = Key("front", "stream")
LEASE_LENGTHS = Key("lease-lengths", "hash")
FLEET = Key("fleet", "hash")
AUTOMATIC = Key("automatic", "set")
CANCELLED_CHAINS = Key("cancelled-chains", "hash")
DEPLOYS = Key("deploys", "hash")
SWEEP_CURSOR = Key("sweep-cursor", "hash")
OFFERS = Key("offers", "zset")
LAST_DIRECT = Key("last-direct", "hash")
OFFER_SECRETS = Key("offer-secrets", "hash")
MANUAL_LEASES = Key("manual-leases", "zset")
PAYLOADS = Key("payload:=", "string")
KEPT_VALUES = Key("kept:=", "string")
UNKNOWN_TASKS = Key("unknown:=", "zset")
UNKNOWN_SINCE = Key("unknown-functions", "hash")
FOREIGN = Key("foreign", "stream")
SETTINGS = Key("settings", "hash")
RATES = Key("rate:=", "zset")
RATE_WAITERS = Key("rate-waiters:=", "zset")
COOLDOWNS = Key("cooldown:=", "string")
DEBOUNCES = Key("debounce:=", "hash")
DELAYS = Key("delay:=", "string")
WINDOWS = Key("windows", "zset")
LEADS = Key("leads:=", "string")
LETTERS = Key("letters", "zset")
LETTER_ENDS = Key("letter-ends", "zset")
LETTER_RECORDS = Key("letter-records", "hash")
LETTER_KEYS = Key("letter-keys", "zset")
LETTER_KINDS = Key("letter-kinds", "hash")
LETTER_KIND = Key("letter-kind:=", "zset")
LETTER_COUNTS = Key("letter-counts", "hash")
LETTER_BATCH = Key("letter-batch:=", "string")
DEATHS = Key("deaths", "hash")
BURIED_CHAINS = Key("buried-chains", "hash")
KEEP_FAILURES = Key("keep-failures", "hash")
# Not "strikes": if another client has used a docket of that name, it keeps a stream there.
STRIKES = Key("strike-rules", "hash")
PAUSES = Key("pauses", "hash")
HELD_BY = Key("held", "hash")
HELD_TASKS = Key("held:=", "zset")
SECRET = Key("secret", "string")
STATS_MINUTE = Key("stats-minute:=", "hash")
STATS_HOUR = Key("stats-hour:=", "hash")
STATS_OPEN = Key("stats-open", "zset")
STATS_FUNCTIONS = Key("stats-functions", "zset")
AUDIT = Key("audit", "stream")
DAMAGED_DATA = Key("damaged:=", "any")
HISTORY_FAILURES = Key("history-failures", "stream")
HISTORY_SAMPLES = Key("history-samples", "stream")
DECLARED = Key("declared", "hash")
WORKER_REPORTS = Key("worker-reports", "hash")
STATS_SAMPLES = Key("stats-samples", "zset")

ALL: tuple[Key, ...] = tuple(known for known in list(vars().values()) if isinstance(known, Key))
