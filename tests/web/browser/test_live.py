"""Pages change by themselves while somebody looks at them."""

import asyncio

import pytest
from playwright.async_api import Browser

from docket import Docket, ExecutionProgress, Progress
from docket.web import Answer, app, streams
from tests.running import at_work, run_everything, worker_for

from .tabs import Tab, opened, served
from .test_actions import add_later, deliver


class Steps:
    """What the running task waits for."""

    def __init__(self) -> None:
        self.next = asyncio.Queue[str]()


steps = Steps()


async def stepwise(progress: ExecutionProgress = Progress()) -> None:
    """Goes on when the test says so, and tells how far it is."""
    await progress.set_total(3)
    while (word := await steps.next.get()) != "end":
        await progress.increment()
        await progress.set_message(word)


async def is_live(tab: Tab) -> None:
    await tab.page.locator("#live.on").wait_for()
    # A new page would lose this.
    await tab.page.evaluate("window.same = true")


async def test_the_counts_of_now_follow_the_docket(docket: Docket, tab: Tab) -> None:
    await tab.page_request("/now")
    await is_live(tab)
    await add_later(docket, "one", "two", "three")
    await tab.page.locator("#tiles .is-scheduled .value", has_text="3").wait_for()
    await docket.cancel("two")
    await tab.page.locator("#tiles .is-scheduled .value", has_text="2").wait_for()
    await tab.page.locator(".nav [data-count=scheduled]", has_text="2").wait_for()
    assert await tab.page.evaluate("window.same")


async def test_a_slot_lights_up_while_its_task_runs(docket: Docket, tab: Tab) -> None:
    steps.next = asyncio.Queue()
    async with worker_for(docket, name="Ada") as worker, at_work(worker):
        await tab.page_request("/now")
        await is_live(tab)
        await docket.add(stepwise, key="long")()
        slot = tab.page.locator("#fleet a.slot")
        await slot.wait_for()
        assert "stepwise" in (await slot.get_attribute("title") or "")
        steps.next.put_nowait("end")
        await slot.wait_for(state="detached")
    assert await tab.page.evaluate("window.same")


async def test_the_progress_of_a_task_is_live(docket: Docket, tab: Tab) -> None:
    steps.next = asyncio.Queue()
    async with worker_for(docket, name="Ada") as worker, at_work(worker):
        await docket.add(stepwise, key="long")()
        await tab.page_request("/task?key=long")
        await is_live(tab)
        for word in ("first page", "second page"):
            steps.next.put_nowait(word)
            await tab.sees(word)
        steps.next.put_nowait("end")
        await tab.sees("Completed")
    assert await tab.page.evaluate("window.same")


async def test_a_list_of_letters_grows(docket: Docket, tab: Tab) -> None:
    await tab.page_request("/dead")
    await is_live(tab)
    await docket.add(deliver, key="one")("bad one")
    await run_everything(docket)
    await tab.page.get_by_role("link", name="RuntimeError").wait_for()
    assert await tab.page.evaluate("window.same")


async def test_what_somebody_selects_stays_selected(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one", "two")
    await tab.page_request("/tasks")
    await is_live(tab)
    await tab.page.get_by_label("Select one", exact=True).check()
    await add_later(docket, "three")
    await tab.page.locator(".nav [data-count=scheduled]", has_text="3").wait_for()
    assert await tab.page.locator("tbody input:checked").count() == 1
    assert await tab.page.locator("tbody tr").count() == 2


async def test_a_page_says_that_its_visitor_is_no_longer_allowed(
    docket: Docket, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LIFE_SECONDS", 0.5)
    allowed: list[Answer] = ["viewer"]
    application = app(docket, guard=lambda request: allowed[0])
    async with served(application) as root, opened(chromium, f"{root}/{docket.name}") as tab:
        await tab.page_request("/now")
        await is_live(tab)
        allowed[0] = None
        await tab.page.locator("#live.off", has_text="no longer allowed").wait_for()
        allowed[0] = "viewer"
        await is_live(tab)
