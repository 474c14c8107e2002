"""Whoever listens hears again after a lost connection, is
told of the gap, and is told why if the server refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from docket.errors import NotOpen, ServerUnsuitable
from docket.storage import subscriptions
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions, tap_events

from .conftest import SECONDS, RealServer
from .scripted_server import ScriptedServer, plainly

pytestmark = pytest.mark.usefixtures("no_complaints")


class Ear:
    """Hears messages and gaps."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[bytes] = asyncio.Queue()
        self.gaps: asyncio.Queue[None] = asyncio.Queue()

    def hear(self, message: bytes) -> None:
        self.messages.put_nowait(message)

    def notice_gap(self) -> None:
        self.gaps.put_nowait(None)

    async def message(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            return await self.messages.get()

    async def gap(self) -> None:
        async with asyncio.timeout(SECONDS):
            await self.gaps.get()


@pytest.fixture
async def server(real: RealServer) -> AsyncIterator[Server]:
    async with Server(real.url_of("tcp")) as server:
        yield server


@pytest.fixture
async def listening(server: Server) -> AsyncIterator[Subscriptions]:
    listening = Subscriptions(server, "test")
    yield listening
    await listening.aclose()


@pytest.fixture
def ear(listening: Subscriptions) -> Ear:
    ear = Ear()
    listening.on_gap(ear, ear.notice_gap)
    return ear


async def test_after_a_killed_connection_all_is_heard_again_and_the_gap_is_told_once(
    listening: Subscriptions, ear: Ear, blocking: Any
) -> None:
    for channel in (b"a", b"b", b"c"):
        await listening.listen(channel, ear.hear)
    blocking.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    await ear.gap()
    for channel in (b"a", b"b", b"c"):
        assert blocking.publish(channel, channel) == 1
    assert [await ear.message() for _ in range(3)] == [b"a", b"b", b"c"]
    assert ear.gaps.empty()


async def test_a_first_subscription_is_no_gap(listening: Subscriptions, ear: Ear, blocking: Any) -> None:
    await listening.listen(b"a", ear.hear)
    blocking.publish("a", "x")
    assert await ear.message() == b"x"
    assert ear.gaps.empty()


async def test_many_messages_and_large_ones_are_heard_in_order(
    listening: Subscriptions, ear: Ear, blocking: Any
) -> None:
    sent = [b"%d" % n for n in range(2000)] + [b"x" * 5_000_000, b"last"]
    await listening.listen(b"a", ear.hear)
    for message in sent:
        blocking.publish("a", message)
    assert [await ear.message() for _ in sent] == sent


async def test_a_silent_connection_is_pinged_and_replaced(
    scripted_server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "SILENCE_SECONDS", 0.05)
    # The first is for calls, the second listens.
    scripted_server.manners = [plainly, lambda words: b"" if words == [b"PING"] else plainly(words)]
    async with Server(scripted_server.url) as server:
        listening, ear = Subscriptions(server, "test"), Ear()
        listening.on_gap(ear, ear.notice_gap)
        await listening.listen(b"a", ear.hear)
        await ear.gap()
        await listening.aclose()
    assert [b"PING"] in scripted_server.heard
    assert scripted_server.connections == 3


async def test_a_channel_that_the_server_refuses_is_told_to_the_one_who_listens(
    real: RealServer, blocking: Any
) -> None:
    blocking.acl_setuser("deaf", enabled=True, nopass=True, commands=["+@all"], keys=["*"], reset=True)
    async with Server(real.url_of("tcp").replace("//", "//deaf:x@")) as server:
        listening = Subscriptions(server, "test")
        with pytest.raises(ServerUnsuitable, match="may not use the channels"):
            await listening.listen(b"a", Ear().hear)
        await listening.aclose()


async def test_those_who_may_listen_hear_again_after_another_was_refused(real: RealServer, blocking: Any) -> None:
    blocking.acl_setuser(
        "hard-of-hearing", enabled=True, nopass=True, commands=["+@all"], keys=["*"], channels=["a"], reset=True
    )
    async with Server(real.url_of("tcp").replace("//", "//hard-of-hearing:x@")) as server:
        listening, ear = Subscriptions(server, "test"), Ear()
        listening.on_gap(ear, ear.notice_gap)
        await listening.listen(b"a", ear.hear)
        with pytest.raises(ServerUnsuitable):
            await listening.listen(b"b", ear.hear)
        await ear.gap()
        blocking.publish("a", "x")
        assert await ear.message() == b"x"
        await listening.aclose()


async def test_closing_while_somebody_waits_for_an_answer_leaves_nothing_behind(
    scripted_server: ScriptedServer,
) -> None:
    scripted_server.manners = [plainly, lambda words: b"" if words[0] == b"SUBSCRIBE" else plainly(words)]
    async with Server(scripted_server.url) as server:
        listening = Subscriptions(server, "test")
        waiting = asyncio.create_task(listening.listen(b"a", Ear().hear))
        async with asyncio.timeout(SECONDS):
            while [b"SUBSCRIBE", b"a"] not in scripted_server.heard:
                await asyncio.sleep(0)
        await listening.aclose()
        with pytest.raises(NotOpen):
            await waiting
        with pytest.raises(NotOpen):
            await listening.listen(b"b", Ear().hear)


async def test_an_overhearer_hears_again_after_its_connection_was_killed(
    server: Server, blocking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "TAP_PAUSE_SECONDS", 0)
    keys, ready, heard = Keys("test"), asyncio.Event(), asyncio.Queue[tuple[str, bytes]]()
    refusals: list[str | None] = []
    task = asyncio.create_task(
        tap_events(server, keys, lambda key, event: heard.put_nowait((key, event)), ready, refusals.append)
    )
    async with asyncio.timeout(SECONDS):
        await ready.wait()
        ready.clear()
        blocking.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await ready.wait()
        blocking.publish(keys.task_channel("key"), "event\nrecord")
        assert await heard.get() == ("key", b"event")
    assert refusals == [None, None], "it was permitted twice"
    task.cancel()
    await asyncio.wait([task])


async def test_a_connection_that_listens_to_a_task_says_so_until_it_listens_to_none(
    real: RealServer, server: Server
) -> None:
    keys = Keys("gate", database=server.database)
    marker = keys.listeners_channel
    listening = Subscriptions(server, "gate", keys=keys)
    ear = Ear()

    async def subscribers() -> int:
        return (await server.ask(marker, "PUBSUB", "NUMSUB", marker))[1]

    try:
        await listening.listen(keys.wake_channel, ear.hear)
        assert await subscribers() == 0
        # The empty key is a key like any other.
        first, second = keys.task_channel(""), keys.task_channel("second")
        await listening.listen(first, ear.hear)
        await listening.listen(second, ear.hear)
        assert await subscribers() == 1
        listening.unlisten(first, ear.hear)
        # A later command of the same connection is answered after it.
        await listening.listen(keys.strike_channel, ear.hear)
        assert await subscribers() == 1
        listening.on_gap(ear, ear.notice_gap)
        await server.ask(marker, "CLIENT", "KILL", "TYPE", "pubsub")
        await ear.gap()
        assert await subscribers() == 1
        listening.unlisten(second, ear.hear)
        await listening.listen(keys.worker_channel("w"), ear.hear)
        assert await subscribers() == 0
    finally:
        await listening.aclose()
