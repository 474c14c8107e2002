"""One run after a burst of submissions: of the first or of the last submission."""

import asyncio
from datetime import timedelta
from typing import Annotated

from docket import Debounce, Docket, Worker

QUIET = timedelta(milliseconds=200)
runs: list[str] = []


async def rebuild_index(reason: str, debounce: Debounce = Debounce(QUIET)) -> None:
    """Runs when no submission has come for a while, with the arguments of the first."""
    runs.append(f"index: {reason}")


async def save_draft(draft_id: Annotated[int, Debounce(QUIET, latest=True)], text: str) -> None:
    """The same for each draft, with the arguments of the last submission."""
    runs.append(f"draft {draft_id}: {text}")


async def main() -> None:
    async with Docket(name="debounces", url="memory://debounces") as docket:
        for reason in ("price", "title", "stock"):
            await docket.add(rebuild_index)(reason)
        for text in ("H", "He", "Hello"):
            await docket.add(save_draft)(1, text)
            await docket.add(save_draft)(2, text.lower())
        async with Worker(docket) as worker:
            await worker.run_until_finished()
    print(runs)
    assert sorted(runs) == ["draft 1: Hello", "draft 2: hello", "index: price"]


asyncio.run(main())
