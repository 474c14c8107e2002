"""Every page, in a real browser: empty and full, light and dark, narrow and wide."""

import pytest
from playwright.async_api import Browser

from docket import Docket

from .scenes import busy
from .tabs import Tab, opened

PAGES = {
    "/now": "Now",
    "/tasks": "Tasks",
    "/dead": "Dead letters",
    "/functions": "Functions",
    "/schedule": "Schedule",
    "/workers": "Workers",
    "/limits": "Limits",
    "/rules": "Pauses and strikes",
    "/audit": "Audit",
}
# The words with which an empty page says what to do.
LESSONS = {
    "/now": "docket worker --docket",
    "/tasks": "docket.add(greet)",
    "/dead": "No task has failed for good",
    "/functions": "needs no decorator",
    "/schedule": "Cron(",
    "/workers": "docket worker --docket",
    "/limits": "ConcurrencyLimit(2)",
    "/rules": "Nothing is paused",
    "/audit": "Nobody has changed anything",
}


async def test_an_empty_page_says_how_to_fill_it(tab: Tab) -> None:
    for path, title in PAGES.items():
        assert await tab.page_request(path) == 200
        assert await tab.text("h1") == title
        assert LESSONS[path] in await tab.text(), path
        assert await tab.find_faults() == [], path


@pytest.mark.parametrize(("width", "theme"), [(360, "light"), (1280, "dark"), (2560, "light")])
async def test_a_full_page_is_readable(
    docket: Docket, chromium: Browser, dashboard: str, theme: str, width: int
) -> None:
    others = ["/task?key=slow-1", "/task?key=narrow-2", "/task?key=flaky-1", "/task?key=later-0", "/task?key=broken-1"]
    others += ["/functions?name=broken", "/dead?function=broken", "/tasks?q=state:finished"]
    look = {"viewport": {"width": width, "height": 900}, "color_scheme": theme}
    async with busy(docket), opened(chromium, dashboard, **look) as tab:
        letter = await docket.dead.get("broken-1")
        assert letter is not None
        for path in (*PAGES, *others, f"/letter?id={letter.id}"):
            assert await tab.page_request(path) == 200, path
            assert await tab.find_faults() == [], path
            assert await tab.too_wide() <= 0, path
