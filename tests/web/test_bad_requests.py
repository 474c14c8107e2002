"""Requests that make no sense. Each has an answer
that says so, and none is a bug of the dashboard."""

import base64
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from docket import Docket, Worker
from docket.web.pages import PAGES

HUGE = 10**400


async def count() -> int:
    return HUGE


@pytest.fixture
async def docket(name: str, url: str) -> AsyncIterator[Docket]:
    async with Docket(name=name, url=url, codec="json") as docket:
        docket.register(count)
        yield docket


@pytest.mark.parametrize("name", ["self", "parts", "page", "template", "status", "page_request", "url", "docket"])
async def test_no_name_in_a_query_breaks_a_page(admin: httpx.AsyncClient, segment: str, name: str) -> None:
    for page in PAGES:
        found = await admin.get(f"/{segment}/{page.path}", params={name: "x"})
        assert found.status_code < 500, page.path
        assert "content-security-policy" in found.headers


def position(stage: int, within: bytes) -> str:
    """A cursor of a list of tasks."""
    return base64.urlsafe_b64encode(bytes([stage]) + bytes(6) + within).decode().rstrip("=")


CURSORS = (
    *("x", "-1", "0-0", "1-", "9" * 23, f"{2**64}", f"{2**64}-0", f"{2**64 - 1}-{2**64 - 1}", "1-1-1", "\u0663"),
    *(position(0, b"9" * 20), position(1, b"9" * 20 + b"-0"), position(1, b"0-0"), position(99, b"")),
)


@pytest.mark.parametrize("cursor", CURSORS)
async def test_a_cursor_that_is_not_one_is_a_bad_request(admin: httpx.AsyncClient, segment: str, cursor: str) -> None:
    pages = {page: f"/{segment}/{page}" for page in ("tasks", "schedule", "limits", "audit", "dead?function=f")}
    reads = {read: f"/api/v1/{segment}/{read}" for read in ("tasks", "limits", "audit", "letters")}
    # Numbers are cursors of limits and of letters.
    numbers = ("limits", "letters", "dead?function=f") if cursor.isascii() and cursor.isdigit() else ()
    for name, address in (pages | reads).items():
        found = await admin.get(
            httpx.URL(address).copy_merge_params({"after" if address in pages.values() else "cursor": cursor})
        )
        assert found.status_code == 400 or (name in numbers and found.status_code == 200), (address, found.text)


@pytest.mark.parametrize("action", ["tasks/add", "letters/retry"])
async def test_a_number_of_any_length_is_a_bad_request(admin: httpx.AsyncClient, segment: str, action: str) -> None:
    field = {"tasks/add": "delay", "letters/retry": "over"}[action]
    body: dict[str, Any] = {"function": "count", field: HUGE}
    found = await admin.post(f"/api/v1/{segment}/{action}", json=body)
    assert (found.status_code, found.json()["type"]) == (400, "urn:docket:problem:bad-request")


async def test_a_result_of_any_length_is_shown(
    docket: Docket, worker: Worker, admin: httpx.AsyncClient, segment: str
) -> None:
    await docket.add(count, key="huge")()
    await worker.run_until_finished()
    assert (await admin.get(f"/{segment}/task?key=huge")).status_code == 200
    assert (await admin.get(f"/api/v1/{segment}/task?key=huge")).json()["result"]["value"] == HUGE
