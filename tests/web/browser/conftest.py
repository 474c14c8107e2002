"""A browser, a served dashboard and a tab on it."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from docket import Docket
from docket.web import app

from .tabs import Tab, browsing, find_chromium, opened, served


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no browser on this machine: install the package chromium")
    async with browsing(program) as browser:
        yield browser


@pytest.fixture
async def dashboard(docket: Docket) -> AsyncIterator[str]:
    """The address of the docket's pages, for everybody and everything."""
    async with served(app(docket, guard=None)) as root:
        yield f"{root}/{docket.name}"


@pytest.fixture
async def tab(chromium: Browser, dashboard: str) -> AsyncIterator[Tab]:
    async with opened(chromium, dashboard, viewport={"width": 1280, "height": 900}) as tab:
        yield tab
