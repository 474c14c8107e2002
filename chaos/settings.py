"""The settings of a chaos run, which all its processes get as JSON."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from docket import Docket

# Short, so that many workers are declared dead in a minute. A busy machine still keeps up with it.
LEASE_SECONDS = 2.0
GRACE_SECONDS = 2.0
CONCURRENCY = 8
# Of each worker.
CHILDREN = 2
# Records must outlive the run: the rules read them after the drain.
RECORD_TTL = timedelta(hours=2)


@dataclass(frozen=True)
class Settings:
    """The settings of one process."""

    folder: str
    url: str
    process: str
    seed: int
    docket: str = "chaos"
    # Where an `add` has to be stored before it returns.
    durability: str = "primary"
    # Of a producer: tasks per second.
    rate: float = 0.0
    # Of a producer: the names of the kinds of work that it adds; none means all.
    work: tuple[str, ...] = ()
    # Of a worker: how wrong its wall clock is.
    clock_seconds: float = 0.0
    # The build of a worker that is broken on purpose.
    broken: str = ""

    @property
    def path(self) -> Path:
        return Path(self.folder)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        fields["work"] = tuple(fields["work"])
        return cls(**fields)

    def make_docket(self) -> Docket:
        """The docket of the run, as all its processes open it."""
        return Docket(
            self.docket,
            self.url,
            heartbeat_interval=timedelta(seconds=LEASE_SECONDS / 4),
            missed_heartbeats=4,
            execution_ttl=RECORD_TTL,
            add_patience=timedelta(seconds=2),
            durability="replica" if self.durability == "replica" else "primary",
        )
