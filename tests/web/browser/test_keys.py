"""The keyboard, the clock and the colours with JavaScript."""

from docket import Docket

from .tabs import Tab
from .test_actions import add_later


async def test_keys_lead_to_pages_rows_and_the_filter(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one", "two")
    await tab.page_request("/now")
    await tab.page.keyboard.press("g")
    await tab.page.keyboard.press("t")
    await tab.page.wait_for_url("**/tasks")
    await tab.page.keyboard.press("j")
    await tab.page.keyboard.press("x")
    assert await tab.page.locator("tbody input:checked").count() == 1
    await tab.page.keyboard.press("/")
    await tab.page.keyboard.type("two")
    await tab.page.keyboard.press("Enter")
    await tab.page.wait_for_url("**/tasks?q=two")
    await tab.page.keyboard.press("?")
    await tab.page.locator("#keys[open]").wait_for()
    assert await tab.find_faults() == []


async def test_the_first_key_leads_past_the_navigation(tab: Tab) -> None:
    await tab.page_request("/now")
    await tab.page.keyboard.press("Tab")
    await tab.page.keyboard.press("Enter")
    assert tab.page.url.endswith("#content")


async def test_times_are_relative_or_absolute(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one")
    await tab.page_request("/tasks")
    time = tab.page.locator("tbody time").first
    assert (await time.inner_text()).startswith("in ")
    await tab.page.get_by_role("button", name="Relative or absolute times").click()
    assert ":" in await time.inner_text()
    await tab.page_request("/tasks")
    assert ":" in await tab.page.locator("tbody time").first.inner_text()


async def test_the_colours_change_without_a_new_page(tab: Tab) -> None:
    await tab.page_request("/now")
    await tab.page.evaluate("window.same = true")
    before = await tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await tab.page.get_by_role("button", name="Dark colours").click()
    assert await tab.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert await tab.page.evaluate("window.same")
