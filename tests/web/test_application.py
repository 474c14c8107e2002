"""The application: what it needs, where it is mounted, and how it fails."""

import subprocess
import sys
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from docket import Docket
from docket.sync import Docket as SyncDocket
from docket.web import app

from .conftest import Browser


def test_an_application_without_a_guard_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(ValueError, match="guard=None, written out"):
        app(Docket("shop", "memory://shop"))


def test_an_application_needs_a_docket() -> None:
    with pytest.raises(ValueError, match="at least one docket"):
        app(guard=None)


def test_an_application_refuses_what_is_not_a_docket() -> None:
    sync: Any = SyncDocket("shop", "memory://shop")
    with pytest.raises(TypeError, match="not a docket.Docket"):
        app(sync, guard=None)


def test_a_guard_is_a_function() -> None:
    role: Any = "admin"
    with pytest.raises(TypeError, match="a guard is a function"):
        app(Docket("shop", "memory://shop"), guard=role)


def test_the_error_about_missing_packages_names_the_extra() -> None:
    program = "import sys; sys.modules['starlette'] = None; import docket.web"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert "pip install 'docket[web]'" in found.stderr.splitlines()[-1]


def test_docket_does_not_import_the_dashboard() -> None:
    program = "import docket, sys; docket.Docket; assert not {'docket.web', 'starlette', 'jinja2'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_the_root_leads_to_the_only_docket(admin: httpx.AsyncClient, segment: str) -> None:
    found = await admin.get("/")
    assert found.status_code == 303
    assert found.headers["location"] == f"/{segment}/now"


async def test_the_root_lists_several_dockets(url: str, browser: Browser) -> None:
    async with Docket("one", url) as one, Docket("two", url) as two:
        found = await browser(app(one, two, guard=None)).get("/")
    assert "/one/now" in found.text
    assert "/two/now" in found.text


async def test_dockets_of_one_name_and_hostile_names_have_addresses_of_their_own(url: str, browser: Browser) -> None:
    names = ["shop", "shop", "api", "../<b>"]
    dockets = [Docket(name, url) for name in names]
    here = browser(app(*dockets, guard=None))
    found = await here.get("/")
    for address in ("/shop/now", "/shop-2/now", "/api-2/now", "/b/now"):
        assert f'"{address}"' in found.text
    assert "<b>" not in found.text


async def test_a_mounted_dashboard_links_below_its_prefix(docket: Docket, browser: Browser, segment: str) -> None:
    outer = Starlette(routes=[Mount("/deep/er", app(docket, guard=None))])
    here = browser(outer)
    found = await here.get("/deep/er/")
    assert found.headers["location"] == f"/deep/er/{segment}/now"
    page = await here.get(found.headers["location"])
    assert page.status_code == 200
    assert f'href="/deep/er/{segment}/now"' in page.text
    assert 'href="/deep/er/assets/' in page.text


async def test_the_application_opens_its_dockets_when_it_starts(name: str, url: str, browser: Browser) -> None:
    application = app(Docket(name, url), guard=None)
    here = browser(application)
    before = await here.get(f"/{name}/now")
    assert before.status_code == 503
    assert "async with docket" in before.text
    async with application.router.lifespan_context(application):
        assert (await here.get(f"/{name}/now")).status_code == 200
    assert (await here.get(f"/{name}/now")).status_code == 503


async def test_an_unknown_page_is_a_page_of_its_own(admin: httpx.AsyncClient, segment: str) -> None:
    for path in ("/nobody/now", f"/{segment}/nothing", "/assets/x/nothing.js"):
        found = await admin.get(path)
        assert found.status_code == 404
        assert found.headers["content-type"].startswith("text/html")


async def test_an_unknown_address_of_the_api_is_problem_json(admin: httpx.AsyncClient) -> None:
    found = await admin.get("/api/v1/nothing/at/all")
    assert found.status_code == 404
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["status"] == 404


async def test_assets_are_kept_for_ever_under_the_name_of_their_content(admin: httpx.AsyncClient, segment: str) -> None:
    page = await admin.get(f"/{segment}/now")
    path = page.text.partition('href="/assets/')[2].partition('"')[0]
    found = await admin.get(f"/assets/{path}")
    assert found.status_code == 200
    assert "immutable" in found.headers["cache-control"]
    outdated = await admin.get(f"/assets/0000/{path.partition('/')[2]}")
    assert outdated.headers["cache-control"] == "no-cache"
    assert outdated.content == found.content
