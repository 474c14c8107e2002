"""A tab of a real browser on a dashboard that is served on a port."""

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from starlette.applications import Starlette

from tests.waiting import SECONDS, eventually

# Containers have no user namespaces, which the sandbox needs. There is no graphics card either:
# without these options, a process of its own plays one, and each tab starts another renderer.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--in-process-gpu", "--renderer-process-limit=1")
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    return next((found for program in PROGRAMS if (found := shutil.which(program))), None)


@asynccontextmanager
async def served(application: Starlette) -> AsyncGenerator[str]:
    """The application on a free port; the address of its root."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings = uvicorn.Config(application, lifespan="off", log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(settings)
        running = asyncio.create_task(_serve(server, listener))
        await eventually(lambda: server.started, "the dashboard is served")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await asyncio.wait_for(running, SECONDS)


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    # uvicorn would take over the signals of the test process.
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    await server.startup(sockets=[listener])
    await server.main_loop()
    await server.shutdown(sockets=[listener])


@dataclass
class Tab:
    """A page of the browser, and what went wrong in it."""

    page: Page
    root: str
    errors: list[str] = field(default_factory=list[str])

    def watch(self) -> None:
        self.page.set_default_timeout(SECONDS * 1000)
        self.page.on("pageerror", lambda error: self.errors.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog: {dialog.message}"))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        # The browser reports an answer such as 404 or 503, which a test may have asked for.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.errors.append(f"console: {message.text}")

    async def page_request(self, path: str) -> int:
        """Opens a page. Returns the status of the answer."""
        answer = await self.page.goto(f"{self.root}{path}")
        assert answer is not None
        return answer.status

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    async def sees(self, words: str, selector: str = "main") -> None:
        """Waits until the words are on the page."""
        await self.page.locator(selector).get_by_text(words).first.wait_for()

    async def act(self, label: str, within: str = "main") -> None:
        """Presses a button, and the one of the question that may follow."""
        button = self.page.locator(within).get_by_role("button", name=label, exact=True).first
        target = await button.get_attribute("popovertarget")
        await button.click()
        if target is not None:
            await self.page.locator(f"#{target}").get_by_role("button", name=label, exact=True).click()
        await self.page.wait_for_load_state()

    async def said(self) -> str:
        """What became of the last change."""
        return await self.page.locator("#said").inner_text()

    async def find_faults(self) -> list[str]:
        """What axe-core finds wrong for people who use a keyboard, a screen reader, or see less."""
        found = await Axe().run(self.page)
        return [
            f"{one['id']}: {one['help']}: " + "; ".join(node["html"][:160] for node in one["nodes"][:4])
            for one in found.response["violations"]
        ]

    async def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        return await self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


@asynccontextmanager
async def browsing(program: str) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=OPTIONS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(browser: Browser, root: str, **options: Any) -> AsyncGenerator[Tab]:
    """A tab of its own, with its own cookies. Nothing may go wrong in it."""
    context: BrowserContext = await browser.new_context(**options)
    tab = Tab(await context.new_page(), root)
    tab.watch()
    try:
        yield tab
    finally:
        with contextlib.suppress(Exception):
            await context.close()
    assert tab.errors == []
