"""Takes the picture of `docket top` in the pages, from the docket of the demo: part of
`make screenshots`, and by itself `python docs/top_picture.py`. It needs no browser."""

import asyncio
import logging
import os
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from rich.console import Console

from docket import Docket, Worker
from docket.cli.demo import shop
from docket.cli.demo.story import Story
from docket.cli.top_screen import TopScreen
from docket.inspection.live import Observer

FILE = Path(__file__).resolve().parent / "images" / "top.svg"
WORKERS = {"Ada": 10, "Grace": 10, "Edsger": 24}
SECONDS, SHARE_BEFORE_THE_PICTURE = 20.0, 0.45
COLUMNS, ROWS = 110, 30
# rich would load its font from another host.
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
FONT = "ui-monospace, 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


async def main() -> None:
    # Some tasks of the demo fail on purpose.
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("DOCKET_ENGINE_LINGER", "0")
    async with AsyncExitStack() as stack:
        docket = await stack.enter_async_context(Docket("shop", "memory://top"))
        for function in shop.tasks:
            docket.register(function)
        for name, slots in WORKERS.items():
            worker = await stack.enter_async_context(Worker(docket, name=name, concurrency=slots))
            stack.callback(asyncio.create_task(worker.run_forever()).cancel)
        observer = Observer(docket)
        await stack.enter_async_context(observer.listening())
        story = asyncio.create_task(Story(docket, SECONDS, lambda _: None).tell())
        for _ in range(round(SECONDS * SHARE_BEFORE_THE_PICTURE)):
            await asyncio.sleep(1)
            await observer.refresh()
        write(docket, observer)
        await story


def write(docket: Docket, observer: Observer) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, height=ROWS, file=nowhere, force_terminal=True)
        server = docket.server
        title = f"docket {docket.name!r} at {server.shown_url} ({server.engine_name} {server.engine_version})"
        console.print(TopScreen(title, observer.state, "q: quit"))
        picture = console.export_svg(title="docket top", unique_id="top")
    picture = FONT_FACE.sub("", picture).replace("Fira Code, monospace", FONT)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("\n".join(line.rstrip() for line in picture.splitlines()) + "\n", "utf-8")
    print(FILE)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
