"""What pydocket 0.27 leaves on a server, written as it writes it (docs/design/foreign-tasks.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import cloudpickle

from docket import Docket


def now() -> datetime:
    return datetime.now(UTC)


def fields(key: str, function: str, when: datetime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    return {
        "key": key,
        "when": when.isoformat(),
        "function": function,
        "args": cloudpickle.dumps(args),
        "kwargs": cloudpickle.dumps(kwargs),
        "attempt": "1",
        "generation": "1",
    }


def record(call: dict[str, Any], state: str) -> Any:
    when = datetime.fromisoformat(call["when"]).timestamp()
    return {"state": state, "when": str(when), "known": str(when), "generation": "1"} | {
        name: call[name] for name in ("function", "args", "kwargs")
    }


async def leave_scheduled(docket: Docket, key: str, function: str, *args: Any, when: datetime, **kwargs: Any) -> None:
    call: Any = fields(key, function, when, args, kwargs)
    async with docket.redis() as redis:
        await redis.hset(f"{docket.name}:{key}", mapping=call)
        await redis.hset(f"{docket.name}:runs:{key}", mapping=record(call, "scheduled"))
        await redis.zadd(f"{docket.name}:queue", {key: when.timestamp()})


async def leave_queued(docket: Docket, key: str, function: str, *args: Any, **kwargs: Any) -> None:
    call: Any = fields(key, function, now(), args, kwargs)
    async with docket.redis() as redis:
        await redis.hset(f"{docket.name}:runs:{key}", mapping=record(call, "queued"))
        await redis.xadd(f"{docket.name}:stream", call)


async def leave_taken(docket: Docket, key: str, function: str, *args: Any) -> None:
    """By a worker of pydocket that is gone."""
    async with docket.redis() as redis:
        groups = (
            await redis.xinfo_groups(f"{docket.name}:stream") if await redis.exists(f"{docket.name}:stream") else []
        )
        if not groups:
            await redis.xgroup_create(f"{docket.name}:stream", "docket-workers", "0", mkstream=True)
        await leave_queued(docket, key, function, *args)
        await redis.xreadgroup("docket-workers", "old-worker", {f"{docket.name}:stream": ">"}, count=1)


async def left(docket: Docket) -> list[str]:
    """The keys that pydocket made and that are still there."""
    async with docket.redis() as redis:
        names = [name.decode() async for name in redis.scan_iter(f"{docket.name}:*")]
        hashes = [name for name in names if await redis.type(name) == b"hash"]
        return sorted([name for name in hashes if await redis.hexists(name, "function")])


LATER = timedelta(hours=1)
