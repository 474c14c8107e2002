"""Builds all names of keys and channels (docs/design/key-layout.md). No other module does."""

from __future__ import annotations

GROUP = "docket-workers"

# All keys. A test compares them with docs/design/key-layout.md and with lua/parts/keys.lua, which
# has the names that scripts build themselves.
OWN_NAMES = (
    "stream",
    "scheduled",
    "tasks",
    "running",
    "repeated",
    "replaced-runs",
    "progress",
    "leases",
    "lost",
    "dying",
    "suspects",
    "alone",
    "stopping",
    "max-losses",
    "epoch",
    "dead",
    "dead-records",
    "limits",
    "parked",
    "slots:=",
    "waiters:=",
    "cancel-requests:=",
    "worker-tasks:=",
    "task-workers:=",
    "runs:=",
    "failed-attempts:=",
    "front",
    "lease-lengths",
    "fleet",
    "automatic",
    "cancelled-chains",
    "deploys",
    "sweep-cursor",
    "offers",
    "last-direct",
    "offer-secrets",
    "manual-leases",
    "payload:=",
    "kept:=",
    "unknown:=",
    "unknown-functions",
    "foreign",
    "settings",
    "rate:=",
    "rate-waiters:=",
    "cooldown:=",
    "debounce:=",
    "delay:=",
    "windows",
    "leads:=",
    "letters",
    "letter-ends",
    "letter-records",
    "letter-keys",
    "letter-kinds",
    "letter-kind:=",
    "letter-counts",
    "letter-batch:=",
    "deaths",
    "buried-chains",
    "keep-failures",
    "strike-rules",
    "pauses",
    "held",
    "held:=",
    "secret",
    "stats-minute:=",
    "stats-hour:=",
    "stats-open",
    "stats-functions",
    "audit",
    "damaged:=",
    "history-failures",
    "history-samples",
    "declared",
    "worker-reports",
    "stats-samples",
)


def segment(text: str) -> str:
    """A user's text as the last segment of a key. The result contains no separator."""
    if "%" in text or ":" in text:
        return text.replace("%", "%25").replace(":", "%3A")
    return text


def text_bytes(text: str) -> bytes:
    """Any Python string as bytes, lone surrogates included: user keys are opaque."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """The text of these bytes. Bytes that no Python string gives, which somebody else has written,
    are shown with escapes: they must not stop the process that reads them."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")


class Keys:
    """The names of everything that one docket stores."""

    def __init__(self, name: str, *, database: int = 0, cluster: bool = False) -> None:
        self.prefix: str = f"{{{name}}}" if cluster else name
        self.database = database
        self.all: list[bytes] = [text_bytes(self.key(suffix)) for suffix in OWN_NAMES]
        # The prefix of all keys, and the one key that scripts get. All keys share its hash slot,
        # and nothing is stored under it.
        self.root: bytes = text_bytes(self.key(""))
        self.stream: str = self.key("stream")
        self.front: str = self.key("front")
        # Not "queue": pydocket keeps its scheduled tasks there (docs/design/foreign-tasks.md).
        self.schedule: str = self.key("scheduled")
        self.leases: str = self.key("leases")
        self.offers: str = self.key("offers")
        self.tasks: str = self.key("tasks")
        self.letters: str = self.key("letters")
        self.buried_chains: str = self.key("buried-chains")
        self.stats_samples: str = self.key("stats-samples")
        self.letter_records: str = self.key("letter-records")
        # Not "strikes": if another client has used a docket of that name, it keeps a stream there.
        self.strikes: str = self.key("strike-rules")
        self.results: str = self.key("results")
        self.channels: str = f"docket/{database}/{len(self.prefix.encode('utf-8', 'surrogatepass'))}:{self.prefix}/"

    def key(self, suffix: str) -> str:
        return f"{self.prefix}:{suffix}"

    def named(self, family: str, text: str) -> str:
        """A key that ends with a user's text."""
        return f"{self.prefix}:{family}:={segment(text)}"

    def run(self, key: str) -> str:
        return self.named("runs", key)

    def payload(self, id: str) -> str:
        return f"{self.prefix}:payload:={id}"

    def kept(self, collection: str, key: str) -> str:
        """Both parts are users' texts: the length shows where the first one ends."""
        return self.named("kept", f"{len(collection)}:{collection}{key}")

    def worker_tasks(self, worker: str) -> str:
        return self.named("worker-tasks", worker)

    def task_workers(self, task: str) -> str:
        return self.named("task-workers", task)

    def rate(self, limit: str) -> str:
        return self.named("rate", limit)

    def rate_waiters(self, limit: str) -> str:
        return self.named("rate-waiters", limit)

    def cooldown(self, limit: str) -> str:
        return self.named("cooldown", limit)

    def debounce(self, limit: str) -> str:
        return self.named("debounce", limit)

    def task_channel(self, key: str) -> bytes:
        return text_bytes(f"{self.channels}task/{key}")

    @property
    def any_task_channel(self) -> tuple[bytes, bytes]:
        """The prefix of the channels of all tasks, and the pattern that matches exactly these
        channels."""
        prefix = f"{self.channels}task/"
        pattern = "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in prefix)
        return text_bytes(prefix), text_bytes(f"{pattern}*")

    @property
    def listeners_channel(self) -> bytes:
        """Whoever listens to a task also subscribes to this channel. Nothing is published there."""
        return text_bytes(f"{self.channels}listeners/")

    def worker_channel(self, worker: str) -> bytes:
        return text_bytes(f"{self.channels}worker/{worker}")

    def delivery_channel(self, worker: str) -> bytes:
        return text_bytes(f"{self.channels}hand/{worker}")

    @property
    def wake_channel(self) -> bytes:
        return text_bytes(f"{self.channels}wake/")

    @property
    def strike_channel(self) -> bytes:
        return text_bytes(f"{self.channels}strikes/")

    @property
    def pause_channel(self) -> bytes:
        return text_bytes(f"{self.channels}pauses/")
