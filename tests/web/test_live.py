"""The streams of tabs and programs, over HTTP."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from docket import Docket, Progress, Worker
from docket.execution import ExecutionProgress
from docket.web import app, streams
from docket.web.dashboard import Dashboard
from docket.web.http_server import listen, serving
from docket.web.streams import CensusReader
from tests.running import running
from tests.waiting import eventually, within


async def work() -> None:
    pass


@pytest.fixture
async def dashboard(docket: Docket) -> AsyncIterator[tuple[str, Dashboard]]:
    """A dashboard that is served, and its address."""
    docket.register(work)
    application = app(docket, guard=None)
    with listen("127.0.0.1", 0) as listening:
        async with serving(application, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", application.state.dashboard


class Tab:
    """Reads the events of a stream."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.seen: list[tuple[str, str]] = []

    async def next(self, name: str) -> Any:
        """The data of the next event of that name."""
        event, data = "", list[str]()
        async for line in self._lines:
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and event:
                found, text = (event, "\n".join(data)), "\n".join(data)
                self.seen.append(found)
                if event == name:
                    return json.loads(text) if text[:1] in "{[" and text else text
                event, data = "", []
        raise EOFError(f"the stream has ended without {name!r}")


@asynccontextmanager
async def tab(address: str, path: str, **options: Any) -> AsyncGenerator[Tab]:
    async with httpx.AsyncClient(timeout=60, **options) as client, client.stream("GET", f"{address}{path}") as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Tab(answer.aiter_lines())


def test_an_answer_does_not_wait_until_its_head_is_acknowledged() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        served, _ = listening.accept()
        with served:
            assert served.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_tab_gets_the_counts_and_their_changes(
    dashboard: tuple[str, Dashboard], docket: Docket, segment: str
) -> None:
    address, _ = dashboard
    async with tab(address, f"/{segment}/live?page=now") as here:
        first = await within(here.next("counts"))
        assert (first["scheduled"], first["trouble"]) == (0, None)
        await docket.add(work, docket.now() + timedelta(hours=1))()
        assert (await within(here.next("counts")))["scheduled"] == 1


async def test_many_tabs_share_one_reader_that_sleeps_when_nobody_watches(
    dashboard: tuple[str, Dashboard], docket: Docket, segment: str
) -> None:
    address, inside = dashboard
    reader = inside.reader(docket)
    assert not reader.is_awake
    async with tab(address, f"/{segment}/live?page=now") as one, tab(address, f"/{segment}/live?page=now") as two:
        await within(one.next("counts"))
        await within(two.next("counts"))
        before = len(reader.recent), reader.tick.number
        await within(reader.next_tick(before[1] + 2))
        after = len(reader.recent), reader.tick.number
        assert after[0] - before[0] <= after[1] - before[1] + 1
    await eventually(lambda: not reader.is_awake, "the reader sleeps")


async def test_a_page_about_one_task_hears_of_that_task(
    dashboard: tuple[str, Dashboard], docket: Docket, worker: Worker, segment: str
) -> None:
    address, _ = dashboard
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(progress: ExecutionProgress = Progress()) -> None:
        begun.set()
        await goes_on.wait()
        await progress.increment()

    docket.register(slow)
    await docket.add(slow, key="a/b c")()
    async with running(worker):
        await within(begun.wait())
        async with tab(address, f"/{segment}/live?page=now&key=a%2Fb%20c") as here:
            await within(here.next("counts"))
            goes_on.set()
            await within(here.next("changed"))


async def test_a_program_hears_every_change_of_a_task(
    dashboard: tuple[str, Dashboard], docket: Docket, worker: Worker, segment: str
) -> None:
    address, _ = dashboard
    async with tab(address, f"/api/v1/{segment}/events?tasks=true") as here:
        await within(here.next("census"))
        await docket.add(work, key="one")()
        await worker.run_until_finished()
        states = list[str]()
        while "completed" not in states:
            event = await within(here.next("task"))
            assert event["key"] == "one"
            states.append(event.get("state", ""))


async def test_a_slow_program_loses_events_and_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from docket.web.api import event_feed

    monkeypatch.setattr(event_feed, "MOST_WAITING", 3)
    inbox = event_feed._Inbox()
    for number in range(5):
        inbox.put(f"key-{number}", json.dumps({"type": "state", "state": "running"}).encode())
    found = [data.decode() for data in inbox.take()]
    assert found[0] == 'event: dropped\ndata: {"events": 2}\n\n'
    assert ["key-2" in found[1], "key-4" in found[3], len(found)] == [True, True, 4]
    assert inbox.take() == []


async def test_a_stream_ends_by_itself_so_that_its_guard_is_asked_again(
    dashboard: tuple[str, Dashboard], segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LIFE_SECONDS", 0.2)
    async with tab(dashboard[0], f"/{segment}/live?page=now") as here:
        with pytest.raises(EOFError):
            await within(here.next("nothing"))


async def test_a_server_that_stops_does_not_wait_for_tabs(docket: Docket, segment: str) -> None:
    application = app(docket, guard=None)
    with listen("127.0.0.1", 0) as listening:
        async with serving(application, listening):
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            context = tab(address, f"/{segment}/live?page=now")
            here = await context.__aenter__()
            await within(here.next("counts"))
    with pytest.raises(EOFError):
        await within(here.next("nothing"))
    await context.__aexit__(None, None, None)


async def test_the_number_of_streams_is_bounded(
    dashboard: tuple[str, Dashboard], segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docket.web.dashboard.MOST_STREAMS", 1)
    address, _ = dashboard
    async with tab(address, f"/{segment}/live?page=now") as here, httpx.AsyncClient() as client:
        await within(here.next("counts"))
        found = await client.get(f"{address}/{segment}/live?page=now")
        assert found.status_code == 503


async def test_streams_that_begin_at_once_are_bounded(
    dashboard: tuple[str, Dashboard], segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("docket.web.dashboard.MOST_STREAMS", 2)
    address, _ = dashboard
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient())
        opened = [client.stream("GET", f"{address}/{segment}/live?page=now") for _ in range(10)]
        streams = await asyncio.gather(*(stack.enter_async_context(stream) for stream in opened))
        assert sorted(stream.status_code for stream in streams) == [200] * 2 + [503] * 8


async def test_a_head_request_does_not_open_a_stream(
    dashboard: tuple[str, Dashboard], segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LIFE_SECONDS", None)
    port = int(dashboard[0].rpartition(":")[2])
    for path in (f"/{segment}/live?page=now", f"/api/v1/{segment}/events"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        found = await within(reader.read())
        assert b"text/event-stream" in found
        writer.close()


async def test_tabs_of_different_sessions_share_their_reading(
    dashboard: tuple[str, Dashboard], segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = dashboard
    views = set[Hashable]()
    once = CensusReader.once

    async def noted(self: CensusReader, what: Hashable, make: Callable[[], Awaitable[Any]]) -> Any:
        views.add(what)
        return await once(self, what, make)

    monkeypatch.setattr(CensusReader, "once", noted)
    async with AsyncExitStack() as stack:
        for session in ("anna", "bert"):
            headers = {"cookie": f"session={session}; docket-theme=dark"}
            here = await stack.enter_async_context(tab(address, f"/{segment}/live?page=now", headers=headers))
            await within(here.next("state"))
    assert len(views) == 1


async def test_a_client_that_never_reads_does_not_slow_others(
    dashboard: tuple[str, Dashboard], docket: Docket, segment: str
) -> None:
    address, _ = dashboard
    port = int(address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        request = f"GET /api/v1/{segment}/events?tasks=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        silent.sendall(request.encode())
        async with tab(address, f"/{segment}/live?page=now") as here:
            await within(here.next("counts"))
            await docket.add(work, docket.now() + timedelta(hours=1))()
            assert (await within(here.next("counts")))["scheduled"] == 1


def test_an_event_with_line_breaks_stays_one_event() -> None:
    assert streams.event("state", "a\r\nevent: evil\rb\n\nc") == (
        b"event: state\ndata: a\ndata: event: evil\ndata: b\ndata: \ndata: c\n\n"
    )
