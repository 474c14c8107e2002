"""Keys, signing and codecs change while the fleet works: nothing is lost, nothing is refused."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket, ExecutionState, Keyring, Perpetual
from docket.codec.payloads import Payloads
from docket.storage.records import read_task
from tests.running import worker_at_work
from tests.waiting import WAIT_LIMIT, eventually, within

OLD, NEW = b"o" * 32, b"n" * 32
ran: list[int] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


async def work(number: int) -> int:
    ran.append(number)
    return number


# The settings of the processes, step by step. In each step, some processes have the settings of the
# step before.
ROTATION: list[dict[str, Any]] = [
    {"signing": Keyring({"old": OLD})},
    {"signing": Keyring({"old": OLD, "new": NEW})},
    {"signing": Keyring({"new": NEW, "old": OLD})},
    {"signing": Keyring({"new": NEW})},
]
INTRODUCTION: list[dict[str, Any]] = [
    {},
    {"signing": Keyring({"old": OLD}), "accept": {"unsigned"}},
    {"signing": Keyring({"old": OLD})},
]
MIGRATION: list[dict[str, Any]] = [
    {},
    {"accept": {"json"}},
    {"codec": "json", "accept": {"pickle"}},
    {"codec": "json"},
]
ENCRYPTION: list[dict[str, Any]] = [
    {"signing": Keyring({"old": OLD})},
    {"signing": Keyring({"old": OLD}), "encrypt": True},
]


@pytest.mark.parametrize(
    "steps",
    [ROTATION, INTRODUCTION, ENCRYPTION, MIGRATION],
    ids=["rotation", "introduction", "encryption", "migration"],
)
async def test_a_mixed_fleet_loses_nothing_at_any_step(name: str, url: str, steps: list[dict[str, Any]]) -> None:
    number = 0
    for before, after in itertools.pairwise(steps):
        async with AsyncExitStack() as stack:
            fleet = [await stack.enter_async_context(Docket(name, url, **settings)) for settings in (before, after)]
            for docket in fleet:
                docket.register(work)
                await stack.enter_async_context(worker_at_work(docket))
            executions = [await fleet[n % 2].add(work)(number + n) for n in range(40)]
            # Whoever added a task may ask for its result, whoever ran it.
            readers = [(after_docket := fleet[1]) and await after_docket.get_execution(e.key) for e in executions]
            results = await within(asyncio.gather(*(r.get_result(timeout=WAIT_LIMIT) for r in readers if r)))
            assert results == list(range(number, number + 40))
            assert (await fleet[1].ledger.queries.census()).dead == 0
            number += 40
    assert sorted(ran) == list(range(number))


async def tick(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=5))) -> None:
    ran.append(0)


async def test_a_perpetual_task_moves_on_to_the_new_key(name: str, url: str) -> None:
    """Its arguments never change, so its call would keep the first key for ever."""
    async with Docket(name, url, signing=Keyring({"old": OLD})) as docket:
        await docket.add(tick, key="tick")()
    settings = Keyring({"new": NEW, "old": OLD})
    async with Docket(name, url, signing=settings) as docket:
        docket.register(tick)

        async def has_new_key() -> bool:
            record = await docket.server.client.hget(docket.keys.tasks, "tick")
            return record is not None and not docket.payloads.is_outdated(read_task(record).call)

        async with worker_at_work(docket):
            await eventually(has_new_key, "the call has the new key")
    ran.clear()
    async with Docket(name, url, signing=Keyring({"new": NEW})) as docket:
        docket.register(tick)
        async with worker_at_work(docket):
            await eventually(lambda: len(ran) >= 2, "it runs with the new key alone")


@pytest.mark.parametrize("encrypt", [False, True])
async def test_dockets_with_keys_share_results_of_every_kind(name: str, url: str, encrypt: bool) -> None:
    async def fails() -> None:
        raise LookupError("not there")

    async def large() -> bytes:
        return b"x" * 100_000

    async def nothing() -> None: ...

    async with Docket(name, url, signing=Keyring({"a": OLD}), encrypt=encrypt) as docket:
        for function in (fails, large, nothing):
            docket.register(function)
        async with worker_at_work(docket):
            with pytest.raises(LookupError, match="not there"):
                await within((await docket.add(fails)()).get_result(timeout=WAIT_LIMIT))
            assert await within((await docket.add(large)()).get_result(timeout=WAIT_LIMIT)) == b"x" * 100_000
            assert await within((await docket.add(nothing)()).get_result(timeout=WAIT_LIMIT)) is None


async def test_an_encrypted_docket_stores_neither_arguments_nor_results_nor_texts_of_errors(
    name: str, url: str
) -> None:
    async def keep(secret: str) -> str:
        return f"kept {secret}"

    async def lose(secret: str) -> None:
        raise LookupError(f"lost {secret}")

    async with Docket(name, url, signing=Keyring({"a": OLD}), encrypt=True) as docket:
        docket.register(keep)
        docket.register(lose)
        kept = await docket.add(keep)("swordfish")
        lost = await docket.add(lose)("swordfish")
        stored = [await docket.server.client.hgetall(docket.keys.tasks)]
        async with worker_at_work(docket):
            assert await within(kept.get_result(timeout=WAIT_LIMIT)) == "kept swordfish"
            with pytest.raises(LookupError, match="lost swordfish"):
                await within(lost.get_result(timeout=WAIT_LIMIT))
        for key in (kept.key, lost.key):
            stored.append(await docket.server.client.get(docket.keys.run(key)))
        assert "swordfish" not in repr(stored)
        await lost.sync()
        assert lost.error == "LookupError (its text is encrypted)"


async def test_a_manual_run_of_a_docket_with_keys_ends(name: str, url: str) -> None:
    async with Docket(name, url, signing=Keyring({"a": OLD})) as docket:
        completed, failed = await docket.add(work)(1), await docket.add(work)(2)
        await completed.mark_as_completed()
        await failed.mark_as_failed("no luck")

        assert await within(completed.get_result(timeout=WAIT_LIMIT)) is None
        with pytest.raises(Exception, match="no luck"):
            await within(failed.get_result(timeout=WAIT_LIMIT))
        assert failed.state is ExecutionState.FAILED


def test_keys_differ_by_docket_purpose_and_key() -> None:
    keyring = Keyring({"a": OLD})
    one, other = Payloads(keyring=keyring, docket="one"), Payloads(keyring=keyring, docket="other")
    sealed = {payloads.seal_rule("strike", b"s") for payloads in (one, other)}
    sealed.add(Payloads(keyring=Keyring({"a": NEW}), docket="one").seal_rule("strike", b"s"))

    assert len(sealed) == 3
    assert one.open_rule("strike", one.seal_rule("strike", b"s")) == b"s"
