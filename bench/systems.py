"""Which systems are compared, and what of them is installed."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Kind(Enum):
    OURS = "ours"
    ASYNC_PEER = "asyncio"
    SYNC_PEER = "threads or processes"
    OTHER_LANGUAGE = "another language"
    LIMIT = "limit"


@dataclass(frozen=True)
class System:
    """One row of the tables. `requirements` go into an environment of its
    own; of `packages` the versions are stated; `imports` is what a user's
    program begins with; with more than `most_slots` it is not run. A system in another language
    needs a `program`, and is left out where that is not installed."""

    name: str
    kind: Kind
    requirements: tuple[str, ...]
    packages: tuple[str, ...]
    imports: str | None
    most_slots: int | None = None
    program: str | None = None

    @property
    def is_peer(self) -> bool:
        return self.kind in (Kind.ASYNC_PEER, Kind.SYNC_PEER)

    @property
    def settings(self) -> str:
        """What the adapter's docstring says."""
        source = Path(__file__).with_name("adapters").joinpath(f"{self.name}.py").read_text("utf-8")
        return " ".join((ast.get_docstring(ast.parse(source)) or "").split())


# hiredis is redis-py's own recommendation for speed; every system that uses redis-py gets it.
HIREDIS = "redis[hiredis]"

SYSTEMS = (
    System("docket", Kind.OURS, ("-e", str(ROOT)), ("docket",), "import docket"),
    System("pydocket", Kind.ASYNC_PEER, ("pydocket>=0.27", HIREDIS), ("pydocket",), "import docket"),
    System("arq", Kind.ASYNC_PEER, ("arq>=0.26", HIREDIS), ("arq",), "from arq import create_pool, run_worker"),
    System(
        "taskiq", Kind.ASYNC_PEER, ("taskiq>=0.12", "taskiq-redis>=1.1", HIREDIS), ("taskiq", "taskiq-redis"),
        "from taskiq_redis import RedisStreamBroker",
    ),
    # Release 0.26.4 imports typing_extensions without requiring it.
    System(
        "saq", Kind.ASYNC_PEER, ("saq[redis,hiredis]>=0.26", "typing_extensions"), ("saq",),
        "from saq import Queue, Worker; from saq.queue.redis import RedisQueue",
    ),
    System("streaq", Kind.ASYNC_PEER, ("streaq>=7",), ("streaq",), "from streaq import Worker"),
    System("celery", Kind.SYNC_PEER, ("celery[redis]>=5.5", HIREDIS), ("celery",), "from celery import Celery"),
    System(
        "dramatiq", Kind.SYNC_PEER, ("dramatiq[redis]>=2", HIREDIS), ("dramatiq",),
        "import dramatiq; from dramatiq.brokers.redis import RedisBroker",
    ),
    System("rq", Kind.SYNC_PEER, ("rq>=2.6", HIREDIS), ("rq",), "from rq import Queue, Worker", most_slots=10),
    System("huey", Kind.SYNC_PEER, ("huey>=3", HIREDIS), ("huey",), "from huey import RedisHuey"),
    # npm installs its packages.
    System("bullmq", Kind.OTHER_LANGUAGE, ("bullmq@6", "ioredis@5"), ("bullmq",), None, program="node"),
    # Debian: apt-get install ruby-sidekiq.
    System("sidekiq", Kind.OTHER_LANGUAGE, (), (), None, program="sidekiq"),
    System("bare", Kind.LIMIT, (HIREDIS,), ("redis",), None),
)  # fmt: skip
