"""Somebody writes other data over the keys of a docket. Every page still has an answer that says
something (docs/design/damaged-data.md)."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from docket import Docket
from tests.running import worker_at_work
from tests.security.damaged_keys import DAMAGES, FAMILIES, TYPES, fill, keys_of

PAGES = ("now", "tasks", "dead?function=fails", "functions", "schedule", "workers", "limits", "rules", "audit")
READS = ("flow", "statistics")


@pytest.mark.faults
@pytest.mark.parametrize("damage", ["garbage", "99999999999999999999", "other type"])
async def test_damage_is_not_a_bug_of_a_page(
    docket: Docket, admin: httpx.AsyncClient, segment: str, damage: str
) -> None:
    await fill(docket)
    addresses = [f"/{segment}/{page}" for page in PAGES] + [f"/api/v1/{segment}/{read}" for read in READS]
    async with docket.redis() as redis:
        async with worker_at_work(docket):
            # A lease and a report of a worker.
            kept = {key: await redis.dump(key) async for key in redis.scan_iter(match=f"{docket.key('')}*")}
        for family in FAMILIES:
            for key, value in kept.items():
                if value is not None:
                    await redis.restore(key, 0, value, replace=True)
            for key in await keys_of(docket, redis, family):
                await DAMAGES[damage](redis, key, TYPES.get(family, "hash"))
            answers = await asyncio.gather(*(admin.get(address) for address in addresses))
            for answer in answers:
                assert answer.status_code != 500, f"{family}: {answer.request.url} {answer.text}"
                assert answer.status_code == 200 or "damaged" in answer.text, f"{family}: {answer.request.url}"
