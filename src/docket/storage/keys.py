"""Builds the names of all keys and channels. The schema declares the keys; no other module names
them."""

from __future__ import annotations

from .schema import keys as schema
from .schema.keys import Key

OWN_NAMES = tuple(known.name for known in schema.ALL)


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
        self.stream: str = self.of(schema.STREAM)
        self.front: str = self.of(schema.FRONT)
        self.schedule: str = self.of(schema.SCHEDULE)
        self.leases: str = self.of(schema.LEASES)
        self.offers: str = self.of(schema.OFFERS)
        self.tasks: str = self.of(schema.TASKS)
        self.letters: str = self.of(schema.LETTERS)
        self.buried_chains: str = self.of(schema.BURIED_CHAINS)
        self.stats_samples: str = self.of(schema.STATS_SAMPLES)
        self.letter_records: str = self.of(schema.LETTER_RECORDS)
        self.strikes: str = self.of(schema.STRIKES)
        self.results: str = self.key("results")
        self.channels: str = f"docket/{database}/{len(self.prefix.encode('utf-8', 'surrogatepass'))}:{self.prefix}/"

    def key(self, suffix: str) -> str:
        return f"{self.prefix}:{suffix}"

    def of(self, key: Key) -> str:
        return f"{self.prefix}:{key.name}"

    def named(self, family: str, text: str) -> str:
        """A key of a family: it ends with a user's text."""
        return f"{self.prefix}:{family}:={segment(text)}"

    def run(self, key: str) -> str:
        return self.named(schema.RUNS.family, key)

    def payload(self, id: str) -> str:
        return f"{self.prefix}:{schema.PAYLOADS.name}{id}"

    def kept(self, collection: str, key: str) -> str:
        """Both parts are users' texts: the length shows where the first one ends."""
        return self.named(schema.KEPT_VALUES.family, f"{len(collection)}:{collection}{key}")

    def worker_tasks(self, worker: str) -> str:
        return self.named(schema.WORKER_TASKS.family, worker)

    def task_workers(self, task: str) -> str:
        return self.named(schema.TASK_WORKERS.family, task)

    def rate(self, limit: str) -> str:
        return self.named(schema.RATES.family, limit)

    def rate_waiters(self, limit: str) -> str:
        return self.named(schema.RATE_WAITERS.family, limit)

    def cooldown(self, limit: str) -> str:
        return self.named(schema.COOLDOWNS.family, limit)

    def debounce(self, limit: str) -> str:
        return self.named(schema.DEBOUNCES.family, limit)

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
