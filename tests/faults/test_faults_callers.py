"""Callers that die, mistype, or choose strange names (rows C6, C14, and bad input)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import pytest

from docket import Docket, ExecutionState
from docket.errors import DocketError, ServerUnreachable, ServerUnsuitable, TaskNotRegistered, UnknownScheme
from tests.waiting import WAIT_LIMIT, eventually

from .conftest import Harness
from .counted_tasks import working

NAMES = [
    "a",
    "a:b",
    "a*",
    "a:runs",
    "a:runs:=k",
    "a:stream",
    "a:tasks",
    "a%3Ab",
    "{}",
    "{a}",
    "a}b{",
    "[ab]",
    "?",
    "\0",
    "a\nb",
    "'\"\\",
    " ",
    "",
    "docket-workers",
    "🗓",
    "\udcff",
    "x" * 512,
]


async def test_dockets_with_hostile_names_do_not_meet(harness: Harness) -> None:
    """All on one database, each with the same keys."""
    async with AsyncExitStack() as stack:
        dockets = [await harness.docket(name, lease=10.0) for name in NAMES]

        async def whose(name: str) -> str:
            return name

        for docket in dockets:
            await stack.enter_async_context(working(await harness.worker(docket)))
        executions = [await docket.add(whose, key="k")(docket.name) for docket in dockets]
        for docket, execution in zip(dockets, executions, strict=True):
            assert await execution.get_result(timeout=WAIT_LIMIT) == docket.name
        later = datetime.now(UTC) + timedelta(hours=1)
        waiting = [await docket.add(whose, later, key="later")(docket.name) for docket in dockets]
        for docket in dockets:
            assert [e.key for e in (await docket.snapshot()).future] == ["later"]
            assert len(await docket.workers()) == 1
        # What one does harms no other.
        await dockets[0].cancel("later")
        assert await dockets[1].clear() == 1
        for execution in waiting[2:]:
            await execution.sync()
            assert execution.state is ExecutionState.SCHEDULED


PRODUCER = """
import asyncio, sys
from docket import Docket

async def nothing(n: int) -> None: ...

async def main() -> None:
    async with Docket(sys.argv[1], sys.argv[2]) as docket:
        print("ready", flush=True)
        n = 0
        while True:
            await asyncio.gather(*(docket.add(nothing, key=f"key-{i}")(n) for i in range(50)))
            await asyncio.gather(*(docket.cancel(f"key-{i}") for i in range(0, 50, 2)))
            n += 1

asyncio.run(main())
"""


async def test_a_producer_that_is_killed_in_the_middle_of_adding_leaves_no_lock(harness: Harness) -> None:
    docket = await harness.docket()

    async def nothing(n: int) -> str:
        return f"after {n}"

    for _ in range(2):
        producer = harness.process(["-c", PRODUCER, docket.name, docket.url])
        await eventually(lambda producer=producer: "ready" in producer.output, "it produces")
        await asyncio.sleep(0.1)
        producer.kill()
        await producer.ended()
    executions = [await docket.replace(nothing, datetime.now(UTC), f"key-{i}")(i) for i in range(50)]
    again = [await docket.add(nothing, key=f"new-{i}")(i) for i in range(50)]
    async with working(await harness.worker(docket)):
        for i, execution in enumerate([*executions, *again]):
            assert await execution.get_result(timeout=WAIT_LIMIT) == f"after {i % 50}"


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("amqp://localhost", UnknownScheme),
        ("localhost:6379", UnknownScheme),
        ("", UnknownScheme),
        ("redis://127.0.0.1:{port}/0", ServerUnreachable),
        ("rediss://127.0.0.1:{port}/0", ServerUnreachable),
        ("unix:///nowhere/at/all", ServerUnreachable),
        ("redis://no.such.host.invalid:6379/0", ServerUnreachable),
        ("redis+cluster://127.0.0.1:{port}", ServerUnreachable),
        ("redis+sentinel://127.0.0.1:{port}/master/0", ServerUnreachable),
        ("redis+sentinel://127.0.0.1:{port}", UnknownScheme),
        ("redis://127.0.0.1:{port}/0?no_such_option=1", DocketError),
        ("redis://127.0.0.1:not-a-port/0", DocketError),
    ],
)
async def test_a_server_that_is_not_there_is_one_clear_error(url: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        async with Docket("docket", url.format(port=unused_port())) as docket:
            # A server that is away can be waited for; whatever needs it says so.
            await docket.snapshot()
    assert "\n" not in str(raised.value)
    assert str(raised.value)


async def test_a_wrong_password_is_one_clear_error_that_does_not_show_it(harness: Harness) -> None:
    server = harness.server("--requirepass", "right", tcp=True)
    address = f"127.0.0.1:{server.port}/0"
    for url in (f"redis://{address}", f"redis://:wrong-secret@{address}", f"redis://user:wrong-secret@{address}"):
        with pytest.raises(ServerUnsuitable) as raised:
            async with Docket("docket", url):
                pass
        assert "wrong-secret" not in str(raised.value)
    async with Docket("docket", f"redis://:right@{address}") as docket:
        assert (await docket.snapshot()).total_tasks == 0, "and nothing was stored"


async def test_a_name_nobody_registered_is_an_error_at_the_caller(harness: Harness) -> None:
    docket = await harness.docket()
    with pytest.raises(TaskNotRegistered, match="no such task"):
        docket.add("no such task")
    with pytest.raises(KeyError):
        docket.call("no such task")
    assert (await docket.snapshot()).total_tasks == 0
