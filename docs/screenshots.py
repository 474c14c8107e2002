"""Takes the pictures of the dashboard in the README,
from the docket of the demo: `make screenshots`.

It needs a Chromium on the machine. The demo runs for
some minutes, so that the charts have something to show.
"""

import asyncio
import logging
import os
import random
import shutil
import socket
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import uvicorn
from playwright.async_api import Browser, ViewportSize, async_playwright

from docket import Docket, Worker
from docket.cli.demo import shop
from docket.cli.demo.story import Story
from docket.web import app

FOLDER = Path(__file__).resolve().parent / "images"
SIZE: ViewportSize = {"width": 1280, "height": 860}
WORKERS = {"Ada": 10, "Grace": 10, "Edsger": 24}
ROUNDS, ROUND_SECONDS = 9, 20.0
# The page, what must be on it, and the name of the picture.
PICTURES = (
    ("now", "#fleet a.slot", "now"),
    ("task?key=catalogue", "progress", "task"),
    ("functions", ".spark", "functions"),
)


async def main() -> int:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("No Chromium on this machine: install the package chromium.", file=sys.stderr)
        return 1
    # Some tasks of the demo fail on purpose.
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("DOCKET_ENGINE_LINGER", "0")
    FOLDER.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        docket = await stack.enter_async_context(Docket("shop", "memory://screenshots"))
        for function in shop.tasks:
            docket.register(function)
        for name, slots in WORKERS.items():
            worker = await stack.enter_async_context(Worker(docket, name=name, concurrency=slots))
            stack.callback(asyncio.create_task(worker.run_forever()).cancel)
        await _schedule_a_day(docket)
        root = await _serve(stack, docket)
        playwright = await stack.enter_async_context(async_playwright())
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        stack.push_async_callback(browser.close)
        await _play_and_take(docket, browser, f"{root}/shop")
    return 0


async def _serve(stack: AsyncExitStack, docket: Docket) -> str:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app(docket, guard=None), lifespan="off", log_level="error"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))

    async def stop() -> None:
        server.should_exit = server.force_exit = True
        await serving

    stack.push_async_callback(stop)
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def _schedule_a_day(docket: Docket) -> None:
    """Receipts for the rest of the day, more of them soon than late."""
    luck, now = random.Random(7), datetime.now(UTC)
    for number in range(400):
        when = now + timedelta(minutes=luck.gammavariate(2, 240))
        await docket.add(shop.send_receipt, when=when, key=f"reminder {number}")(f"#{number}")


async def _play_and_take(docket: Docket, browser: Browser, root: str) -> None:
    """Plays the story several times. A tab that stays open keeps the dashboard awake."""
    context = await browser.new_context(viewport=SIZE)
    watcher = await context.new_page()
    await watcher.goto(f"{root}/now")
    taking: asyncio.Task[None] | None = None
    for number in range(1, ROUNDS + 1):
        print(f"round {number} of {ROUNDS} …", flush=True)
        story = Story(docket, ROUND_SECONDS, lambda _: None)
        story.orders = number * 1000
        if number == ROUNDS:
            taking = asyncio.create_task(_take_all(browser, root))
        await story.tell()
    assert taking is not None
    await taking
    await context.close()


async def _take_all(browser: Browser, root: str) -> None:
    # The catalogue of the last round, and some orders.
    await asyncio.sleep(ROUND_SECONDS * 0.2)
    for theme in ("light", "dark"):
        context = await browser.new_context(viewport=SIZE, color_scheme=theme, reduced_motion="reduce")
        page = await context.new_page()
        for path, wanted, name in PICTURES:
            await page.goto(f"{root}/{path}")
            await page.locator(wanted).first.wait_for()
            await page.locator("#live.on").wait_for()
            await page.screenshot(path=FOLDER / f"dashboard-{name}-{theme}.png")
        await context.close()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
