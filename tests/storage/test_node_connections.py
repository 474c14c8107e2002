"""A confirmation of a replica counts only for the primary that the sentinels name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from docket.storage import primary_check
from docket.storage.connection import Connection
from docket.storage.node_connections import NodeConnections
from docket.storage.nodes import NodeAddress, SentinelNodes
from docket.storage.scripts import load


class ConfirmedConnection:
    """A connection whose writes replicas confirm."""

    def __init__(self) -> None:
        self.pipeline = object()
        self.address: NodeAddress = ("127.0.0.1", 6379)
        self.moves = 0
        # How many replicas there are, how many of them lag, and how many each write has waited for.
        self.replicas = 1
        self.late = 0
        self.waited_for: list[int] = []

    async def connect(self) -> None: ...

    async def ask(self, *words: str) -> bytes:
        assert words == ("INFO", "replication")
        # Valkey writes the type of a replica, too.
        more = b",type=replica" if self.replicas > 1 else b""
        lines = [b"role:master", b"connected_slaves:%d" % (self.replicas + 1)]
        lines += [
            b"slave%d:ip=::1,port=1,state=online,offset=7,lag=%d%s" % (n, n % 2, more) for n in range(self.replicas)
        ]
        lines += [
            b"slave9:ip=::1,port=1,state=online,offset=7,lag=59,type=replica",
            b"slave8:state=online,lag=10",
            b"master_replid:0",
        ]
        return b"\r\n".join(lines)

    async def run_and_wait(self, *words: Any) -> tuple[bytes, int]:
        self.waited_for.append(words[-1])
        return b"stored", self.replicas - self.late

    def move(self) -> None:
        self.pipeline, self.address, self.moves = object(), ("127.0.0.1", 6380), self.moves + 1


class Sentinels(SentinelNodes):
    """They agree on the primary, unless they replace it."""

    def __init__(self) -> None:
        super().__init__([], "main", {}, tls=False)
        self.agree = True
        self.asked = 0
        self.on_question: Callable[[], None] = lambda: None

    def agree_on(self, primary: NodeAddress, patience: float) -> bool:
        self.asked += 1
        self.on_question()
        return self.agree


class Writes:
    """Writes that wait for replicas, on connections behind sentinels."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.connection = ConfirmedConnection()
        self.sentinels = Sentinels()
        self._connections = NodeConnections(cast(Any, None), self.sentinels, stack, 5.0)

    async def confirmed(self) -> bool:
        _, replicas = await self._connections.run_and_wait(
            cast(Connection, self.connection), load("enqueue"), [b"k"], [], 1000
        )
        return not isinstance(replicas, RedisConnectionError)


@pytest.fixture
async def writes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writes]:
    # No write of these tests is slow.
    monkeypatch.setattr(primary_check, "SLOW_SECONDS", 3600.0)
    async with AsyncExitStack() as stack:
        yield Writes(stack)


async def test_the_sentinels_are_asked_once_while_all_replicas_confirm(writes: Writes) -> None:
    assert [await writes.confirmed() for _ in range(5)] == [True] * 5
    assert writes.sentinels.asked == 1


async def test_the_confirmation_of_an_old_primary_does_not_count_for_the_new_one(writes: Writes) -> None:
    """The connection follows while the sentinels are asked: they agree on the new
    primary, which may not have the write."""
    writes.sentinels.on_question = writes.connection.move
    assert not await writes.confirmed()


async def test_a_primary_that_a_replica_has_left_has_to_be_the_primary_still(writes: Writes) -> None:
    """The sentinels promote the replica that has left. The other one still confirms."""
    writes.connection.replicas = 2
    assert await writes.confirmed()
    writes.connection.replicas = 1
    writes.sentinels.agree = False
    assert not await writes.confirmed()


async def test_a_replica_that_is_gone_delays_one_write(writes: Writes) -> None:
    writes.connection.replicas = 2
    await writes.confirmed()
    writes.connection.replicas = 1
    assert [await writes.confirmed() for _ in range(3)] == [True] * 3
    assert writes.connection.waited_for == [1, 2, 1, 1]
    assert writes.sentinels.asked == 2


async def test_writes_wait_for_a_replica_that_comes_later(writes: Writes) -> None:
    """One that has not answered for a minute is not counted."""
    await writes.confirmed()
    writes.connection.replicas = 3
    await writes.confirmed()
    await writes.confirmed()
    assert writes.connection.waited_for == [1, 1, 3]


async def test_a_write_that_a_new_replica_does_not_have_counts_only_if_the_sentinels_agree(writes: Writes) -> None:
    """They may promote a replica that has come a moment ago."""
    assert await writes.confirmed()
    writes.connection.replicas, writes.connection.late = 2, 1
    writes.sentinels.agree = False
    assert not await writes.confirmed()


async def test_the_first_write_on_a_new_primary_does_not_wait_for_the_replicas_of_the_old_one(writes: Writes) -> None:
    writes.connection.replicas = 2
    await writes.confirmed()
    await writes.confirmed()
    writes.connection.replicas = 1
    writes.connection.move()
    assert await writes.confirmed()
    assert writes.connection.waited_for == [1, 2, 1]
    assert writes.sentinels.asked == 2
