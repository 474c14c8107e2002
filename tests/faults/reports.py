"""What tasks tell of themselves, kept on a server that no test disturbs."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any

import redis

VARIABLE = "FAULTS_REPORTS"


@dataclass(frozen=True)
class HealthPipe:
    """`event` happened to task `key` in process `pid`,
    at `at` seconds on the machine's monotonic clock."""

    event: str
    key: str
    pid: int
    at: float
    wall: float


class Reports:
    """A list that every process of one test appends to and reads."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._client: Any = redis.Redis.from_url(url, decode_responses=True)

    def write(self, event: str, key: str) -> None:
        report = {"event": event, "key": key, "pid": os.getpid(), "at": time.monotonic(), "wall": time.time()}
        self._client.rpush("reports", json.dumps(report))

    def read(self, event: str | None = None, key: str | None = None) -> list[HealthPipe]:
        everything = [HealthPipe(**json.loads(line)) for line in self._client.lrange("reports", 0, -1)]
        return [r for r in everything if event in (None, r.event) and key in (None, r.key)]

    def count(self, event: str, key: str | None = None) -> int:
        return len(self.read(event, key))

    def release(self, name: str) -> None:
        """Lets every task go on that holds for this name."""
        self._client.set(f"released:{name}", 1)

    def is_released(self, name: str) -> bool:
        return bool(self._client.exists(f"released:{name}"))

    def close(self) -> None:
        self._client.close()
