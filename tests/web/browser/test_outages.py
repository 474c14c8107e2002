"""A server that goes away, and comes back."""

from playwright.async_api import Browser

from docket import Docket
from docket.testing.servers import ServerProcess
from docket.web import app

from .tabs import opened, served
from .test_actions import add_later


async def test_a_page_says_that_the_server_is_away_and_heals(name: str, chromium: Browser) -> None:
    with ServerProcess("--appendonly", "yes", tcp=True) as server:
        async with Docket(name, server.url) as docket:
            await add_later(docket, "one")
            async with served(app(docket, guard=None)) as root, opened(chromium, f"{root}/{name}") as tab:
                await tab.page_request("/now")
                await tab.page.locator("#live.on").wait_for()
                await tab.page.evaluate("window.same = true")
                server.kill()
                await tab.page.locator("#trouble:not([hidden])").wait_for()
                await tab.page.locator("#live.off").wait_for()
                server.start()
                await tab.page.locator("#trouble[hidden]").wait_for(state="attached")
                await add_later(docket, "two")
                await tab.page.locator("#tiles .is-scheduled .value", has_text="2").wait_for()
                assert await tab.page.evaluate("window.same")


async def test_a_new_page_says_that_the_server_is_away_and_heals(name: str, chromium: Browser) -> None:
    with ServerProcess("--appendonly", "yes", tcp=True) as server:
        docket = Docket(name, server.url)
        async with docket, served(app(docket, guard=None)) as root, opened(chromium, f"{root}/{name}") as tab:
            server.kill()
            assert await tab.page_request("/tasks") == 503
            assert "The server cannot be reached" in await tab.text()
            assert await tab.find_faults() == []
            server.start()
            await tab.sees("There are no tasks")


async def test_one_click_is_one_change_whatever_the_server_does(name: str, chromium: Browser) -> None:
    with ServerProcess("--appendonly", "yes", tcp=True) as server:
        docket = Docket(name, server.url)
        async with docket, served(app(docket, guard=None)) as root, opened(chromium, f"{root}/{name}") as tab:
            sent: list[str] = []
            tab.page.on("request", lambda request: sent.append(request.method))
            await tab.page_request("/rules")
            form = tab.page.locator("form[action$='pauses/add']")
            server.kill()
            await form.evaluate("form => { form.elements.function.value = 'ship'; form.submit(); }")
            await tab.page.get_by_text("This page asks again").wait_for()
            server.start()
            await tab.page.get_by_text("This page asks again").wait_for(state="detached")
            assert "not known whether the change was made" in await tab.said()
            assert sent.count("POST") == 1
            assert await docket.pauses() == []
