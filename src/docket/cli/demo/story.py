"""The events of the demo, and their times."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from docket.cli.demo import shop
from docket.docket import Docket

PAGES_TO_INDEX = 2000
# The rest of the time is for tasks that are not finished yet.
SHARE_OF_ORDERS = 0.75


class Story:
    """Adds orders and a few special tasks, and explains them in captions."""

    def __init__(self, docket: Docket, seconds: float, say: Callable[[str], None]) -> None:
        self._docket = docket
        self._seconds = seconds
        self._say = say
        self.orders: int = 0
        self.index_began: float = 0.0

    @property
    def pause(self) -> float:
        """How long the shop stays closed."""
        return self._seconds * (1 - SHARE_OF_ORDERS)

    async def tell(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        chapters = [
            (
                0.0,
                "Orders come in: each is charged and sent by courier, and its receipt follows two seconds later.",
                self._nothing,
            ),
            (0.08, "Meanwhile a task prints a catalogue and reports its progress.", self._print_catalogue),
            (0.2, "Payments fail now and then: docket retries them after growing pauses.", self._nothing),
            (0.32, "The old warehouse never answers: that task has no retry and fails.", self._call_the_old_warehouse),
            (0.42, f"{PAGES_TO_INDEX:,} pages need indexing: one call adds all the tasks.", self._index_pages),
            (
                0.52,
                f"Each courier has {shop.COURIER_LINES} telephone lines: further calls wait for a free line.",
                self._nothing,
            ),
            (0.62, "A cron task closes the books at every full minute.", self._nothing),
            (SHARE_OF_ORDERS, "The shop closes; the workers finish the tasks that are left.", self._nothing),
        ]
        for share, caption, happen in chapters:
            await self._take_orders_until(began + share * self._seconds)
            self._say(caption)
            await happen()

    async def _take_orders_until(self, moment: float) -> None:
        loop = asyncio.get_running_loop()
        while (left := moment - loop.time()) > 0:
            self.orders += 1
            await self._docket.add(shop.place_order, key=f"order {self.orders}")(f"#{self.orders}")
            await asyncio.sleep(min(shop.diary.luck.uniform(0.05, 0.25), left))

    async def _nothing(self) -> None:
        pass

    async def _print_catalogue(self) -> None:
        await self._docket.add(shop.print_catalogue, key="catalogue")(max(round(self._seconds * 2), 1))

    async def _call_the_old_warehouse(self) -> None:
        await self._docket.add(shop.call_the_old_warehouse, key="old warehouse")("#1")

    async def _index_pages(self) -> None:
        self.index_began = asyncio.get_running_loop().time()
        call = self._docket.call(shop.index_page)
        await self._docket.add_many(call(page) for page in range(PAGES_TO_INDEX))
