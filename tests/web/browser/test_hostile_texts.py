"""Texts that try to become a part of the page stay texts, wherever they come from."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from playwright.async_api import Browser, Page

from docket import Docket, ExecutionProgress, Logged, Progress
from docket.web import app
from tests.running import at_work, worker_for
from tests.waiting import eventually

from .tabs import opened, served

CORPUS = (
    "<script>window.stolen=1</script>",
    '"><img src=x onerror="window.stolen=1">',
    "'-window.stolen-'",
    "javascript:window.stolen=1",
    "</title></textarea></style><svg onload=window.stolen=1>",
    "{{ 7 * 7 }}{% raw %}${7*7}#{7*7}",
    "<iframe srcdoc='<script>parent.stolen=1</script>'></iframe>",
    "\u202egnp.exe\u202c \x00 \x1b[31m \u2028",
    "--><!--<base href=//evil.example/>",
    "../../..//evil.example/%2e%2e?x=1&y=2#z",
)
LISTS = (
    "/now",
    "/tasks",
    "/tasks?q=state:finished",
    "/dead",
    "/functions",
    "/schedule",
    "/workers",
    "/rules",
    "/audit",
)
# Elements that no template has.
INTRUDERS = "main script, main iframe, main base, main object, main embed, main img, main style, [onload], [onerror]"


async def hostile(text: Annotated[str, Logged], progress: ExecutionProgress = Progress()) -> None:
    await progress.set_message(text)
    raise RuntimeError(text)


async def test_nothing_hostile_runs_or_changes_a_page(url: str, chromium: Browser) -> None:
    async with Docket(CORPUS[1], url) as docket:
        for number, text in enumerate(CORPUS):
            function = f"f{number}{text}"
            docket.register(hostile, names=[function])
            await docket.add(function, key=text)(text)
            await docket.add(function, when=datetime.now(UTC) + timedelta(hours=1), key=f"later {text}")(text)
            await docket.pause(f"p{text}", "text", "==", text)
            await docket.strike(f"s{text}", "text", "==", text)
        await run_until_failed(docket)
        async with served(app(docket, guard=None)) as root, opened(chromium, root) as tab:
            await tab.page_request("/")
            lists = [f"{tab.page.url.removesuffix('/now')}{path}" for path in LISTS]
            found: dict[str, None] = {}
            for address in lists:
                await tab.page.goto(address)
                await is_harmless(tab.page)
                links = await tab.page.eval_on_selector_all("main a", "links => links.map(link => link.href)")
                assert all(link.startswith(root) for link in links)
                found |= dict.fromkeys(links)
            for address in [link for link in found if "after=" not in link]:
                await tab.page.goto(address)
                await is_harmless(tab.page)


async def run_until_failed(docket: Docket) -> None:
    async with worker_for(docket, name=CORPUS[0]) as worker, at_work(worker):
        await eventually(lambda: _have_failed(docket), "all hostile tasks have failed")


async def _have_failed(docket: Docket) -> bool:
    return await docket.dead.count() == len(CORPUS)


async def is_harmless(page: Page) -> None:
    assert await page.evaluate("window.stolen") is None
    assert await page.locator(INTRUDERS).count() == 0
    text = await page.inner_text("body")
    assert not [character for character in text if not character.isprintable() and character not in "\n\t\xa0"]
