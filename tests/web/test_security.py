"""Attacks on the dashboard, and servers that are away, slow or of a newer release."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest

from docket import Docket, Logged, Worker
from docket.storage.schema.records import RECORD_VERSION
from docket.testing.servers import ServerProcess
from docket.web import app, dashboard, http_server
from docket.web.api.reads import READS
from docket.web.pages import PAGES
from tests.security.forgeries import ENVELOPE, finished_record, task_record
from tests.security.traps import Trap
from tests.waiting import eventually

from .conftest import Browser, browser_of

HOSTILE = "<script>alert('x')</script>\"'`{{7*7}}\u202e\x1b[31m\x00\r\nSet-Cookie: a=b"


async def ship(order: Annotated[str, Logged], card: str = "", weight: Any = 1) -> None:
    if weight == 0:
        raise ValueError(HOSTILE)


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "sprang")


def pages(segment: str) -> list[str]:
    """The addresses of the pages in the navigation."""
    return [f"/{segment}/{page.path}" for page in PAGES if page.title is not None]


def questions(segment: str, **values: str) -> list[str]:
    """The addresses of all reads of the API whose fields are known."""
    found: list[str] = []
    for read in READS:
        needed = [one.name for one in read.inputs if one.is_required]
        if all(name in values for name in needed):
            query = httpx.QueryParams({name: values[name] for name in needed})
            found.append(f"/api/v1/{segment}/{read.path}?{query}")
    return found


async def test_nothing_is_unpickled(docket: Docket, worker: Worker, browser: Browser, segment: str, trap: Trap) -> None:
    docket.register(ship)
    await docket.add(ship, key="dies")("#1", weight=0)
    await worker.run_until_finished()
    server, keys = docket.server.client, docket.keys
    await docket.add(ship, docket.now() + timedelta(hours=1), key="waits")("#2")
    record = await server.hget(keys.tasks, "waits")
    call = bytes(2) + ENVELOPE + trap.pickled
    await server.hset(keys.tasks, "waits", record[: record.index(b"ship") + len("ship")] + call)
    await server.set(keys.run("ended"), finished_record(task_record("ship", trap.pickled), trap.pickled), ex=600)
    here = browser(app(docket, guard=None))
    letter = (await docket.dead.page()).letters[0]
    for key in ("waits", "ended", "dies"):
        values = {"key": key, "id": str(letter.id), "name": "ship"}
        for address in (*pages(segment), *questions(segment, **values), f"/{segment}/task?key={key}"):
            assert (await here.get(address)).status_code in (200, 400, 404), address
        for address in ("tasks/cancel", "tasks/cancel-matching"):
            await here.post(f"/api/v1/{segment}/{address}", json={"keys": [key]} if address == "tasks/cancel" else {})
    await here.post(f"/api/v1/{segment}/letters/edit", json={"id": letter.id, "arguments": {"weight": 1}})
    await here.post(f"/api/v1/{segment}/letters/retry", json={"everything": True})
    assert not trap.sprang


async def test_only_logged_arguments_are_shown(docket: Docket, worker: Worker, browser: Browser, segment: str) -> None:
    docket.register(ship)
    await docket.add(ship, key="dies")("order-4711", "card-0815", 0)
    await worker.run_until_finished()
    await docket.add(ship, docket.now() + timedelta(hours=1), key="waits")("order-4711", "card-0815")
    here = browser(app(docket, guard=None))
    letter = (await docket.dead.page()).letters[0]
    values = {"key": "waits", "id": str(letter.id), "name": "ship"}
    seen = ""
    for address in (*pages(segment), *questions(segment, **values), f"/{segment}/task?key=waits"):
        seen += (await here.get(address)).text
    assert "order-4711" in seen
    assert "card-0815" not in seen


async def test_hostile_names_and_texts_are_inert_everywhere(url: str, browser: Browser) -> None:
    async with Docket(HOSTILE, url) as docket, Worker(docket, name=HOSTILE) as worker:
        docket.register(ship, names=[HOSTILE])
        await docket.add(HOSTILE, key="dies")(HOSTILE, weight=0)
        await worker.run_until_finished()
        await docket.add(HOSTILE, docket.now() + timedelta(hours=1), key=HOSTILE)(HOSTILE)
        await docket.pause(HOSTILE, HOSTILE, "==", HOSTILE)
        await docket.strike(HOSTILE, HOSTILE, "==", HOSTILE)
        application = app(docket, guard=None)
        here = browser(application)
        segment = next(iter(application.state.dashboard.dockets))
        query = httpx.QueryParams({"key": HOSTILE})
        error = f"/{segment}/{httpx.QueryParams({'x': HOSTILE})}"
        for address in ("/", *pages(segment), f"/{segment}/task?{query}", error):
            found = await here.get(address, follow_redirects=True)
            assert "<script>alert" not in found.text, address
            assert "\u202e" not in found.text
            assert "\x1b" not in found.text
            assert "\x00" not in found.text
            assert "set-cookie" not in found.headers
        for address in questions(segment, key=HOSTILE, name=HOSTILE):
            found = await here.get(address)
            assert found.status_code == 200, address
            assert found.headers["content-type"] == "application/json"
            assert found.text.isascii()


async def test_a_message_of_a_change_is_inert(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=None))
    await here.post(f"/{segment}/actions/pauses/add", data={"function": HOSTILE})
    found = await here.get(f"/{segment}/now")
    assert "Paused" in found.text
    assert "<script>alert" not in found.text
    here.cookies.set("docket-message", "!!not base64")
    assert (await here.get(f"/{segment}/now")).status_code == 200


async def test_no_file_outside_of_the_assets_is_served(docket: Docket, browser: Browser) -> None:
    here = browser(app(docket, guard=None))
    for path in ("../headers.py", "..%2fheaders.py", "%2e%2e/headers.py", "/etc/passwd", "README.md", ""):
        assert (await here.get(f"/assets/x/{path}")).status_code == 404


# Servers


@pytest.fixture
async def away(redis_server: ServerProcess) -> AsyncIterator[tuple[ServerProcess, Docket]]:
    """A server of its own that the test may harm, and a docket on it."""
    with ServerProcess(binary="redis", tcp=True) as server:
        async with Docket("shop", server.url) as docket:
            yield server, docket


async def test_a_page_says_that_the_server_is_away_and_heals(away: tuple[ServerProcess, Docket]) -> None:
    server, docket = away
    async with browser_of(app(docket, guard=None)) as here:
        assert (await here.get("/shop/now")).status_code == 200
        server.kill()
        for path in pages("shop"):
            found = await here.get(path)
            assert found.status_code == 503, path
            assert "cannot be reached" in found.text
            assert found.headers["retry-after"]
            assert 'http-equiv="refresh"' in found.text
        problem = await here.get("/api/v1/shop/census")
        assert (problem.status_code, problem.json()["type"]) == (503, "urn:docket:problem:server-unreachable")
        change = await here.post("/api/v1/shop/pauses/add", json={"function": "ship"})
        assert change.status_code == 503
        server.start()

        async def is_back() -> bool:
            return (await here.get("/shop/now")).status_code == 200

        await eventually(is_back, "the page is back")


async def test_a_change_whose_server_is_away_is_not_made_again_by_its_page(
    away: tuple[ServerProcess, Docket],
) -> None:
    server, docket = away
    async with browser_of(app(docket, guard=None)) as here:
        assert (await here.get("/shop/rules")).status_code == 200
        server.kill()
        answer = await here.post("/shop/actions/pauses/add", data={"function": "ship", "return_to": "/shop/rules"})
        # A page at the address of the change would ask again, and so would send the form again.
        assert (answer.status_code, answer.headers["location"]) == (303, "/shop/rules")
        assert "not known whether the change was made" in (await here.get("/shop/rules")).text
        server.start()

        async def is_back() -> bool:
            # What a script of the page asks does not take the message from the visitor.
            return (await here.get("/shop/rules", headers={"Sec-Fetch-Mode": "cors"})).status_code == 200

        await eventually(is_back, "the page is back")
        assert "not known whether the change was made" in (await here.get("/shop/rules")).text
        assert "not known whether the change was made" not in (await here.get("/shop/rules")).text


async def test_a_slow_server_is_said(away: tuple[ServerProcess, Docket], monkeypatch: pytest.MonkeyPatch) -> None:
    server, docket = away
    monkeypatch.setattr(dashboard, "READ_SECONDS", 0.2)
    async with browser_of(app(docket, guard=None)) as here:
        server.pause()
        try:
            found = await here.get("/shop/now")
        finally:
            server.wake()
    assert found.status_code == 503
    assert "answers slowly" in found.text
    assert 'http-equiv="refresh"' in found.text


async def test_a_task_of_a_newer_release_is_said(docket: Docket, browser: Browser, segment: str) -> None:
    record = finished_record(task_record("ship", b"?"), b"")
    newer = bytes([RECORD_VERSION + 1]) + record[1:]
    await docket.server.client.set(docket.keys.run("ended"), newer, ex=600)
    found = await browser(app(docket, guard=None)).get(f"/api/v1/{segment}/task?key=ended")
    assert found.status_code == 503
    assert found.json()["type"] == "urn:docket:problem:newer-release"
    assert "Upgrade docket" in found.json()["detail"]


# Clients


@pytest.fixture
async def served(docket: Docket) -> AsyncIterator[int]:
    """The port of a dashboard that is served."""
    with http_server.listen("127.0.0.1", 0) as listening:
        async with http_server.serving(app(docket, guard=None), listening):
            yield listening.getsockname()[1]


async def closed(connection: socket.socket) -> bool:
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    try:
        return await loop.sock_recv(connection, 1_000) == b""
    except ConnectionError:
        return True


async def test_a_client_that_sends_its_request_slowly_is_given_up(served: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.2)
    for beginning in (
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
    ):
        with socket.create_connection(("127.0.0.1", served)) as slow:
            slow.sendall(beginning)
            # A request that is refused is answered first.
            while not await closed(slow):
                pass


async def test_many_connections_do_not_keep_others_out(
    served: int, segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 5)
    crowd = [socket.create_connection(("127.0.0.1", served)) for _ in range(20)]
    try:
        async with httpx.AsyncClient() as client:
            assert (await client.get(f"http://127.0.0.1:{served}/{segment}/now")).status_code == 200
        assert await closed(crowd[0])
    finally:
        for connection in crowd:
            connection.close()


async def test_busy_connections_do_not_keep_others_out(
    served: int, segment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 3)
    address = f"http://127.0.0.1:{served}/{segment}"
    async with AsyncExitStack() as stack:
        for _ in range(3):
            busy = stack.enter_context(socket.create_connection(("127.0.0.1", served)))
            busy.sendall(f"GET /{segment}/live?page=now HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert not await closed(busy)
        newcomer = await stack.enter_async_context(httpx.AsyncClient())
        assert (await newcomer.get(f"{address}/now")).status_code == 200
