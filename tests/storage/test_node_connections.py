"""A confirmation of a replica counts only for the primary that the sentinels name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from docket.storage.client import node_connections
from docket.storage.client.connection import Connection
from docket.storage.client.node_connections import NodeConnections
from docket.storage.client.nodes import Agreement, NodeAddress, SentinelNodes
from docket.storage.scripts import load
from tests.waiting import WAIT_LIMIT, eventually


class ConfirmedConnection:
    """A connection whose writes replicas confirm."""

    def __init__(self) -> None:
        self.pipeline = object()
        self.address: NodeAddress = ("127.0.0.1", 6379)
        self.moves = 0
        # How many replicas there are, the port of the first one, how many of them lag, and how many
        # each write has waited for.
        self.replicas = 1
        self.port = 7001
        self.late = 0
        self.waited_for: list[int] = []

    async def connect(self) -> None: ...

    async def ask(self, *words: str) -> bytes:
        assert words == ("INFO", "replication")
        # Valkey writes the type of a replica, too.
        more = b",type=replica" if self.replicas > 1 else b""
        lines = [b"role:master", b"connected_slaves:%d" % (self.replicas + 1)]
        lines += [
            b"slave%d:ip=::1,port=%d,state=online,offset=7,lag=%d%s" % (n, self.port + n, n % 2, more)
            for n in range(self.replicas)
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
        self.known = Agreement(0, others=False)
        self.asked = self.searched = 0
        self.on_question: Callable[[], None] = lambda: None

    def find(self, slot: int, patience: float) -> NodeAddress:
        self.searched += 1
        return ("127.0.0.1", 6379)

    def agree_on(self, primary: NodeAddress, patience: float) -> Agreement | None:
        self.asked += 1
        self.on_question()
        return self.known if self.agree else None


class Writes:
    """Writes that wait for replicas, on connections behind sentinels."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.connection = ConfirmedConnection()
        self.sentinels = Sentinels()
        self._connections = NodeConnections(cast(Any, SimpleNamespace(name="docket")), self.sentinels, stack, 5.0)

    async def confirmed(self) -> bool:
        _, replicas = await self._connections.run_and_wait(
            cast(Connection, self.connection), load("enqueue"), [b"k"], [], 1000
        )
        return not isinstance(replicas, RedisConnectionError)


@pytest.fixture
async def writes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Writes]:
    # No write of these tests is slow.
    monkeypatch.setattr(node_connections, "SLOW_SECONDS", 3600.0)
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


async def test_a_replica_that_has_come_does_not_confirm_for_one_that_has_left(writes: Writes) -> None:
    """One replica was away during the last write. It is back, and the sentinels have promoted the
    other one since: the number of replicas is the same."""
    assert await writes.confirmed()
    writes.connection.port = 7002
    writes.sentinels.agree = False
    assert not await writes.confirmed()


async def test_a_replica_that_the_sentinels_know_and_the_primary_does_not_have_may_be_promoted(writes: Writes) -> None:
    """It has lost its connection for a moment. The sentinels need not notice."""
    writes.sentinels.known = Agreement(2, others=False)
    assert await writes.confirmed()
    writes.sentinels.agree = False
    assert not await writes.confirmed()


@pytest.mark.parametrize(
    ("known", "limit"),
    [(Agreement(1, others=True), "RETURN_SECONDS"), (Agreement(1, others=False), "IDLE_SECONDS")],
    ids=["one is down", "all are there"],
)
async def test_a_replica_that_came_and_was_promoted_since_the_last_write_is_noticed(
    writes: Writes, monkeypatch: pytest.MonkeyPatch, known: Agreement, limit: str
) -> None:
    """The primary has the same replicas as before, and all of them confirm."""
    monkeypatch.setattr(node_connections, "RETURN_SECONDS", 3600.0)
    monkeypatch.setattr(node_connections, "IDLE_SECONDS", 3600.0)
    writes.sentinels.known = known
    assert [await writes.confirmed() for _ in range(3)] == [True] * 3
    assert writes.sentinels.asked == 1
    # From here on, this time is over before the next write.
    monkeypatch.setattr(node_connections, limit, 0.0)
    writes.connection.pipeline = object()
    assert await writes.confirmed()
    writes.sentinels.agree = False
    assert not await writes.confirmed()


async def test_writes_at_the_same_time_share_a_question_that_began_after_they_were_confirmed(writes: Writes) -> None:
    """A question that was under way before says nothing about them."""
    answer, under_way = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait_for_the_test() -> None:
        loop.call_soon_threadsafe(under_way.set)
        answer.wait(WAIT_LIMIT.total_seconds())

    writes.sentinels.on_question = wait_for_the_test
    first = asyncio.create_task(writes.confirmed())
    await under_way.wait()
    later = [asyncio.create_task(writes.confirmed()) for _ in range(3)]
    await eventually(lambda: len(writes.connection.waited_for) == 4, "all are confirmed")
    answer.set()
    assert await asyncio.gather(first, *later) == [True] * 4
    assert writes.sentinels.asked == 2


async def test_a_node_is_not_searched_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many calls of a producer fail and search during an outage."""
    monkeypatch.setattr(node_connections, "PAUSE_SECONDS", 3600.0)
    async with AsyncExitStack() as stack:
        sentinels = Sentinels()
        connections = NodeConnections(cast(Any, SimpleNamespace(name="docket")), sentinels, stack, 5.0)
        await connections.look_up(0)
        searching = [asyncio.create_task(connections.look_up(0)) for _ in range(5)]
        await asyncio.wait(searching, timeout=0.2)
        assert sentinels.searched == 1
        for search in searching:
            search.cancel()
        await asyncio.wait(searching)
    monkeypatch.setattr(node_connections, "PAUSE_SECONDS", 0.0)
    async with AsyncExitStack() as stack:
        connections = NodeConnections(cast(Any, SimpleNamespace(name="docket")), sentinels, stack, 5.0)
        await connections.look_up(0)
        await connections.look_up(0)
        assert sentinels.searched == 3


async def test_replicas_that_docket_cannot_see_do_not_confirm_without_the_sentinels(writes: Writes) -> None:
    """A server that writes INFO in another way may have any number of them."""
    assert await writes.confirmed()
    writes.connection.ask = unreadable
    writes.sentinels.agree = False
    assert not await writes.confirmed()


async def unreadable(*words: str) -> bytes:
    return b"role:master\r\nfollowers:3"


async def test_a_replica_that_lags_delays_one_write_and_is_waited_for_again_later(
    writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_connections, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(node_connections, "LAG_SECONDS", 3600.0)
    writes.connection.replicas = 2
    await writes.confirmed()
    writes.connection.late = 1
    assert [await writes.confirmed() for _ in range(3)] == [True] * 3
    monkeypatch.setattr(node_connections, "LAG_SECONDS", 0.0)
    await writes.confirmed()
    await writes.confirmed()
    assert writes.connection.waited_for == [1, 2, 1, 1, 1, 2]


async def test_the_first_write_does_not_hide_a_replica_from_the_next_ones(writes: Writes) -> None:
    """It waits for one replica. The sentinels would be asked after each write if the next ones did
    the same."""
    writes.connection.replicas, writes.connection.late = 2, 1
    assert await writes.confirmed()
    writes.connection.late = 0
    assert [await writes.confirmed() for _ in range(3)] == [True] * 3
    assert writes.connection.waited_for == [1, 2, 2, 2]
    assert writes.sentinels.asked == 1


async def test_the_first_write_on_a_new_primary_does_not_wait_for_the_replicas_of_the_old_one(writes: Writes) -> None:
    writes.connection.replicas = 2
    await writes.confirmed()
    await writes.confirmed()
    writes.connection.replicas = 1
    writes.connection.move()
    assert await writes.confirmed()
    assert writes.connection.waited_for == [1, 2, 1]
    assert writes.sentinels.asked == 2
