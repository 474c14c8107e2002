"""Browsers for the dashboard: clients that talk to the application without a network."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import httpx
import pytest
from starlette.applications import Starlette

from docket import Docket
from docket.web import app

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
Browser = Callable[[Starlette], httpx.AsyncClient]


def browser_of(application: Starlette) -> httpx.AsyncClient:
    """A browser whose requests come from the pages of the dashboard."""
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://dashboard", headers=SAME_ORIGIN)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """Makes browsers, and closes them."""
    async with AsyncExitStack() as stack:

        def make(application: Starlette) -> httpx.AsyncClient:
            made = browser_of(application)
            stack.push_async_callback(made.aclose)
            return made

        yield make


@pytest.fixture
async def admin(docket: Docket, browser: Browser) -> httpx.AsyncClient:
    """A browser of an admin, on a dashboard without a guard."""
    return browser(app(docket, guard=None))


@pytest.fixture
def segment(name: str) -> str:
    """The docket in URLs."""
    return name
