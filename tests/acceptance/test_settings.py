"""Settings that must be the same for producers and workers: a worker says where they are not."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from docket import Docket, Worker
from docket.worker.fleet.settings_check import SettingsCheck
from tests.waiting import ends


async def noop() -> None: ...


@pytest.fixture
async def producer(docket: Docket) -> AsyncGenerator[Docket]:
    """Another process's idea of the docket."""
    async with Docket(
        docket.name, docket.url, execution_ttl=timedelta(seconds=20), max_payload=1000, max_losses=9
    ) as producer:
        yield producer


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "must be the same everywhere" in r.getMessage()]


async def test_a_worker_says_once_that_a_producer_has_other_settings(
    docket: Docket, producer: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    await producer.add(noop)()
    docket.register(noop)
    async with Worker(docket) as worker:
        await ends(worker.run_until_finished())
        assert len(warnings(caplog)) == 2
        await worker.staff.settings_check.compare()
    ttl, payload = warnings(caplog)
    assert f"docket '{docket.name}': execution_ttl is 900s here and 20s at producer" in ttl
    assert "--app module:docket" in ttl
    assert "max_payload is 8388608 here and 1000 at producer" in payload
    # What becomes of lost tasks is decided by workers, whatever a producer has.
    assert "max_losses" not in caplog.text


async def test_workers_that_disagree_say_so(docket: Docket, producer: Docket, caplog: pytest.LogCaptureFixture) -> None:
    async with Worker(producer, name="Ada") as first, Worker(docket, name="Grace") as second:
        await ends(first.run_until_finished())
        await ends(second.run_until_finished())
    assert any("max_losses is 3 here and 9 at worker Ada" in warning for warning in warnings(caplog))


async def test_the_leader_notices_a_producer_that_comes_later(
    docket: Docket, producer: Docket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docket.worker.fleet.settings_check.EVERY_SECONDS", 0.01)
    compared = SettingsCheck.compare

    async def compare(agreement: SettingsCheck) -> None:
        await compared(agreement)
        if warnings(caplog):
            worker.stop()

    monkeypatch.setattr(SettingsCheck, "compare", compare)
    started = []

    async def add_it() -> None:
        started.append(await producer.add(noop)())

    docket.register(noop)
    async with Worker(docket) as worker:
        await docket.add(add_it)()
        await ends(worker.run_forever())
    assert started
    assert "execution_ttl" in warnings(caplog)[0]


async def test_a_process_that_only_looks_declares_nothing(
    docket: Docket, producer: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    await producer.snapshot()
    async with Worker(docket) as worker:
        await ends(worker.run_until_finished())
    assert warnings(caplog) == []


async def test_the_same_settings_are_not_worth_a_word(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Docket(docket.name, docket.url) as producer:
        await producer.add(noop)()
        docket.register(noop)
        async with Worker(docket) as worker:
            await ends(worker.run_until_finished())
    assert warnings(caplog) == []


async def test_declarations_are_forgotten(docket: Docket, producer: Docket) -> None:
    await producer.add(noop)()
    async with Worker(docket) as worker, docket.redis() as client:
        await ends(worker.run_until_finished())
        assert 0 < await client.pttl(docket.keys.key("settings")) <= 15 * 60 * 1000
        for declaration in await client.hkeys(docket.keys.key("settings")):
            await client.hset(docket.keys.key("settings"), declaration, "1000 somebody")
        await worker.staff.settings_check.compare()
        assert await client.hlen(docket.keys.key("settings")) == 1
