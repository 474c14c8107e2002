"""Pages work without JavaScript: filters, changes, colours."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from docket import Docket

from .conftest import SHARED
from .tabs import Tab, opened
from .test_actions import add_later, unfinished


@pytest_asyncio.fixture(loop_scope=SHARED)
async def plain_tab(chromium: Browser, dashboard: str) -> AsyncIterator[Tab]:
    async with opened(chromium, dashboard, java_script_enabled=False) as tab:
        yield tab


async def test_tasks_are_filtered_and_cancelled(docket: Docket, plain_tab: Tab) -> None:
    tab = plain_tab
    await add_later(docket, "order-1", "order-2", "other")
    await tab.page_request("/tasks")
    await tab.page.fill(".filter input", "prefix:order-")
    await tab.page.click(".filter button")
    assert await tab.page.locator("tbody tr").count() == 2
    await tab.page.get_by_label("Select order-1", exact=True).check()
    await tab.act("Cancel selected")
    assert "Cancelled 1 waiting task" in await tab.said()
    assert await unfinished(docket) == {"order-2", "other"}


async def test_pages_follow_each_other(docket: Docket, plain_tab: Tab) -> None:
    tab = plain_tab
    await add_later(docket, *(f"task-{number:02}" for number in range(60)))
    await tab.page_request("/tasks")
    assert await tab.page.locator("tbody tr").count() == 50
    await tab.page.get_by_role("link", name="Next page").click()
    assert await tab.page.locator("tbody tr").count() == 10
    await tab.page.get_by_role("link", name="First page").click()
    assert await tab.page.locator("tbody tr").count() == 50


async def test_the_colours_are_chosen_and_remembered(plain_tab: Tab) -> None:
    tab = plain_tab
    await tab.page_request("/tasks?q=state:finished")
    await tab.page.get_by_role("button", name="Dark colours").click()
    assert tab.page.url.endswith("/tasks?q=state%3Afinished")
    assert await tab.page.get_attribute("html", "data-theme") == "dark"
    await tab.page_request("/rules")
    assert await tab.page.get_attribute("html", "data-theme") == "dark"
    await tab.page.get_by_role("button", name="Colours of the system").click()
    assert await tab.page.get_attribute("html", "data-theme") is None


async def test_the_way_back_never_leads_to_another_site(plain_tab: Tab) -> None:
    for back in ("//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"):
        await plain_tab.page_request(f"/look?theme=dark&back={back}")
        assert plain_tab.page.url == f"{plain_tab.root}/now"
