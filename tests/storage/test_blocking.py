"""A command that blocks on the server can be ended from outside, whatever the server allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from docket.storage.client.connection import BlockingConnection, Connection
from tests.waiting import eventually

from .conftest import SECONDS, RealServer
from .scripted_server import client_of

pytestmark = pytest.mark.usefixtures("no_complaints")
LONG = 600


@pytest.fixture
async def other(real: RealServer) -> AsyncIterator[Connection]:
    line = Connection(client_of(real.url_of("unix")), SECONDS)
    yield line
    await line.aclose()


@pytest.fixture
async def waiting(line: Connection, other: Connection) -> AsyncIterator[BlockingConnection]:
    waiting = BlockingConnection(line, other.ask, lambda error: None)
    yield waiting
    await waiting.aclose()


def pop(line: BlockingConnection) -> asyncio.Task[Any]:
    return asyncio.create_task(line.ask("BLPOP", "nothing", LONG, patience=LONG))


async def is_blocked(blocking: Any) -> None:
    await eventually(lambda: blocking.info("clients")["blocked_clients"], "a client is blocked")


async def test_a_command_that_waits_is_ended(waiting: BlockingConnection, blocking: Any) -> None:
    for _ in range(3):
        call = pop(waiting)
        await is_blocked(blocking)
        waiting.interrupt()
        assert await asyncio.wait_for(call, SECONDS) is None
        assert not waiting.was_cut


async def test_a_command_that_is_not_sent_yet_is_not_sent(waiting: BlockingConnection) -> None:
    call = pop(waiting)
    await asyncio.sleep(0)
    waiting.interrupt()
    assert await asyncio.wait_for(call, SECONDS) is None


async def test_a_command_that_the_server_has_not_read_yet_is_ended(waiting: BlockingConnection) -> None:
    assert await waiting.ask("ECHO", "a", patience=SECONDS) == b"a"
    for _ in range(20):
        call = pop(waiting)
        await asyncio.sleep(0)
        waiting.interrupt()
        assert await asyncio.wait_for(call, SECONDS) is None


async def test_without_a_command_there_is_nothing_to_end(waiting: BlockingConnection) -> None:
    waiting.interrupt()
    assert await waiting.ask("ECHO", "a", patience=SECONDS) == b"a"
    waiting.interrupt()
    assert await waiting.ask("ECHO", "b", patience=SECONDS) == b"b"


@pytest.mark.parametrize("refused", ["-client|unblock", "-client"])
async def test_where_the_server_refuses_the_connection_is_cut(
    waiting: BlockingConnection, blocking: Any, refused: str
) -> None:
    blocking.execute_command("ACL", "SETUSER", "default", refused)
    try:
        call = pop(waiting)
        await is_blocked(blocking)
        waiting.interrupt()
        assert await asyncio.wait_for(call, SECONDS) is None
        assert waiting.was_cut
        assert await waiting.ask("ECHO", "a", patience=SECONDS) == b"a"
        assert not waiting.was_cut
    finally:
        blocking.execute_command("ACL", "SETUSER", "default", "+@all")


async def test_a_connection_that_is_lost_by_itself_is_not_taken_for_an_end(
    waiting: BlockingConnection, blocking: Any
) -> None:
    call = pop(waiting)
    await is_blocked(blocking)
    for client in blocking.client_list():
        if client["cmd"] == "blpop":
            blocking.client_kill_filter(_id=client["id"])
    with pytest.raises(RedisConnectionError):
        await asyncio.wait_for(call, SECONDS)


async def test_a_connection_that_was_made_again_can_be_interrupted_too(
    waiting: BlockingConnection, line: Connection, blocking: Any
) -> None:
    number = await waiting.ask("CLIENT", "ID", patience=SECONDS)
    lost = line.pipeline
    assert lost is not None
    blocking.client_kill_filter(_id=str(number))
    await asyncio.wait_for(asyncio.shield(lost.ended), SECONDS)
    call = pop(waiting)
    await is_blocked(blocking)
    waiting.interrupt()
    assert await asyncio.wait_for(call, SECONDS) is None
    assert not waiting.was_cut
