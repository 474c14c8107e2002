"""Somebody writes other data over the keys of a docket. Every page still has an answer that says
something (docs/design/damaged-data.md)."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from docket import Docket
from tests.running import worker_at_work
from tests.security.damaged_keys import DAMAGES, FAMILIES, TYPES, fill, keys_of, waits

PAGES = (
    *("now", "tasks", "tasks?q=state:finished", "tasks?q=state:unfinished", "dead", "dead?function=fails"),
    *("functions", "schedule", "workers", "limits", "rules", "audit", "task?key=still"),
)
READS = (
    *("census", "flow", "tasks", "task?key=still", "why?key=still", "functions", "statistics", "schedule"),
    *("letters", "letters/overview", "limits", "workers", "running", "rules", "audit", "scaling"),
)


@pytest.mark.parametrize("family", FAMILIES)
async def test_damage_stops_no_page(docket: Docket, admin: httpx.AsyncClient, segment: str, family: str) -> None:
    await fill(docket)
    addresses = [f"/{segment}/{page}" for page in PAGES] + [f"/api/v1/{segment}/{read}" for read in READS]
    broken: dict[str, list[str]] = {}
    async with worker_at_work(docket), docket.redis() as redis:
        await docket.add(waits, key="still")("still")
        for name, damage in DAMAGES.items():
            for key in await keys_of(docket, redis, family):
                await damage(redis, key, TYPES.get(family, "hash"))
            answers = await asyncio.gather(*(admin.get(address) for address in addresses))
            found = [
                f"{answer.status_code} {address} {answer.text[:200] if 'api' in address else ''}"
                for answer, address in zip(answers, addresses, strict=True)
                if answer.status_code >= 500
            ]
            if found:
                broken[name] = found
    assert broken == {}
