"""Who comes in, and whose changes are carried out."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse

from docket import Docket
from docket.web import Answer, Role, UsersFile, Visitor, app, guards

from .conftest import SAME_ORIGIN, Browser

# No page takes a POST here, so whoever comes in is told that.
INSIDE = 405


async def change(here: httpx.AsyncClient, segment: str, **headers: str) -> httpx.Response:
    return await here.post(f"/{segment}/now", headers=headers)


async def test_a_guard_keeps_visitors_out(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: None))
    for path in ("/", f"/{segment}/now", "/api/v1/dockets", "/nothing"):
        assert (await here.get(path)).status_code == 403


async def test_a_guard_may_be_async_and_sees_the_request(docket: Docket, browser: Browser, segment: str) -> None:
    async def guard(request: HTTPConnection) -> Answer:
        return "viewer" if request.headers.get("x-user") == "anna" else None

    here = browser(app(docket, guard=guard))
    assert (await here.get(f"/{segment}/now")).status_code == 403
    assert (await here.get(f"/{segment}/now", headers={"x-user": "anna"})).status_code == 200


async def test_a_guard_may_send_its_visitor_elsewhere(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: RedirectResponse("/sign-in")))
    found = await here.get(f"/{segment}/now")
    assert found.headers["location"] == "/sign-in"


async def test_a_guard_that_answers_nonsense_lets_nobody_in(docket: Docket, browser: Browser, segment: str) -> None:
    nonsense: Any = "root"
    here = browser(app(docket, guard=lambda request: nonsense))
    assert (await here.get(f"/{segment}/now")).status_code == 500


async def test_a_guard_that_raises_lets_nobody_in(docket: Docket, browser: Browser, segment: str) -> None:
    def guard(request: HTTPConnection) -> Answer:
        raise RuntimeError("secret of the guard")

    found = await browser(app(docket, guard=guard)).get(f"/{segment}/now")
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "content-security-policy" in found.headers


@pytest.mark.parametrize(("role", "status"), [(Role.VIEWER, 403), (Role.OPERATOR, INSIDE), (Role.ADMIN, INSIDE)])
async def test_viewers_change_nothing(docket: Docket, browser: Browser, segment: str, role: Role, status: int) -> None:
    here = browser(app(docket, guard=lambda request: Visitor(role, "anna")))
    assert (await here.get(f"/{segment}/now")).status_code == 200
    assert (await change(here, segment)).status_code == status


async def test_nobody_changes_anything_in_read_only_mode(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: "admin", read_only=True))
    found = await change(here, segment)
    assert found.status_code == 403
    assert "read-only" in found.text


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "none"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://dashboard"}, False),
        ({"Origin": "http://dashboard"}, True),
        ({"Origin": "https://dashboard"}, True),
        ({"Origin": "http://dashboard.evil.example"}, False),
        ({"Origin": "http://dashboard:81"}, False),
        ({"Origin": "http://dashboard@evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "file://dashboard"}, False),
        ({"Origin": "http://[dashboard"}, False),
        ({}, False),
    ],
)
async def test_changes_are_refused_unless_a_page_of_the_dashboard_sent_them(
    docket: Docket, segment: str, headers: dict[str, str], is_let_in: bool
) -> None:
    transport = httpx.ASGITransport(app(docket, guard=None))
    async with httpx.AsyncClient(transport=transport, base_url="http://dashboard") as here:
        found = await change(here, segment, **headers)
    assert found.status_code == (INSIDE if is_let_in else 403)


async def test_a_page_under_another_name_is_refused(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=None, hosts=["dashboard", "[::1]"]))
    for host, status in (("dashboard", 200), ("dashboard:8000", 200), ("[::1]:80", 200), ("evil.example", 403)):
        assert (await here.get(f"/{segment}/now", headers={"host": host})).status_code == status


async def test_every_answer_forbids_foreign_and_inline_content(docket: Docket, browser: Browser, segment: str) -> None:
    refused = browser(app(docket, guard=lambda request: None))
    inside = browser(app(docket, guard=None))
    answers = [
        await inside.get(f"/{segment}/now"),
        await inside.get("/nothing/here"),
        await inside.get("/api/v1/nothing"),
        await inside.post(f"/{segment}/now", headers=SAME_ORIGIN),
        await refused.get(f"/{segment}/now"),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("odd", [None, 7, b"anna"])
async def test_a_visitor_whose_name_is_not_a_text_changes_nothing(
    docket: Docket, browser: Browser, segment: str, odd: Any
) -> None:
    here = browser(app(docket, guard=lambda request: Visitor(Role.ADMIN, name=odd)))
    assert (await here.post(f"/api/v1/{segment}/pauses/add", json={"function": "ship"})).status_code == 500
    assert await docket.pauses() == []


async def test_a_visitor_without_a_name_is_anonymous(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: Visitor(Role.ADMIN, name="")))
    assert (await here.post(f"/api/v1/{segment}/pauses/add", json={"function": "ship"})).status_code == 200
    assert (await docket.audit()).entries[0].who == "anonymous"


async def test_nobody_finds_out_which_names_there_are(
    docket: Docket, browser: Browser, segment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that the file does not have takes as
    long as a wrong password, however it is stored."""
    file = tmp_path / "users"
    file.write_text(f"anna:viewer:plain password\nbert:viewer:{guards.hash_password('secret')}\n")
    here, computed, digest = browser(app(docket, guard=UsersFile(file))), list[str](), guards._digest

    def noted(password: str, salt: bytes) -> bytes:
        computed.append(password)
        return digest(password, salt)

    monkeypatch.setattr(guards, "_digest", noted)
    for name in ("anna", "bert", "nobody"):
        assert (await here.get(f"/{segment}/now", auth=(name, f"guess of {name}"))).status_code == 401
    assert computed == ["guess of anna", "guess of bert", "guess of nobody"]
