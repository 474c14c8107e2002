"""A browser, a served dashboard and a tab on it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from docket import Docket
from docket.web import app

from .tabs import Tab, browsing, find_chromium, opened, served

FOLDER = f"{Path(__file__).parent}/"
# A browser takes longer to start than most tests last. So the tests of
# this folder share one, and with it the event loop that talks to it.
SHARED = "package"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(FOLDER):
            item.add_marker(pytest.mark.asyncio(loop_scope=SHARED), append=False)


@pytest_asyncio.fixture(scope=SHARED, loop_scope=SHARED)
async def chromium() -> AsyncIterator[Browser]:
    program = find_chromium()
    if program is None:
        pytest.skip("no browser on this machine: install the package chromium")
    async with browsing(program) as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope=SHARED)
async def docket(name: str, url: str) -> AsyncIterator[Docket]:
    """An open docket with nothing on it, on the event loop of the tests."""
    async with Docket(name=name, url=url) as docket:
        yield docket


@pytest_asyncio.fixture(loop_scope=SHARED)
async def dashboard(docket: Docket) -> AsyncIterator[str]:
    """The address of the docket's pages, for everybody and everything."""
    async with served(app(docket, guard=None)) as root:
        yield f"{root}/{docket.name}"


@pytest_asyncio.fixture(loop_scope=SHARED)
async def tab(chromium: Browser, dashboard: str) -> AsyncIterator[Tab]:
    """A tab of its own, with its own cookies."""
    async with opened(chromium, dashboard, viewport={"width": 1280, "height": 900}) as tab:
        yield tab
