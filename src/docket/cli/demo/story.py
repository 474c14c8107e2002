"""What happens in the demo, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from docket.cli.demo import shop
from docket.docket import Docket

PAGES_TO_INDEX = 2000
# The last part of the time is for work that is still on its way.
SHARE_OF_ORDERS = 0.75


class Story:
    """Brings in orders and a few special events, and says what there is to see."""

    def __init__(self, docket: Docket, seconds: float, say: Callable[[str], None]) -> None:
        self._docket = docket
        self._seconds = seconds
        self._say = say
        self.orders: int = 0
        self.index_began: float = 0.0

    async def tell(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        chapters = [
            (
                0.0,
                "Orders come in: each is charged, sent by courier, and gets its receipt two seconds later.",
                self._nothing,
            ),
            (0.08, "A catalogue is printed meanwhile; it reports its progress.", self._print_catalogue),
            (0.2, "Cards fail now and then: those tasks are tried again after growing pauses.", self._nothing),
            (0.32, "The old warehouse never answers: that task fails for good.", self._call_the_old_warehouse),
            (0.42, f"{PAGES_TO_INDEX:,} pages have to be indexed: added in one go.", self._index_pages),
            (
                0.52,
                f"Each courier has {shop.COURIER_LINES} telephone lines: further calls wait in line.",
                self._nothing,
            ),
            (0.62, "The books are closed at every full minute, by the clock on the wall.", self._nothing),
            (SHARE_OF_ORDERS, "The shop closes; what is still on its way is finished.", self._nothing),
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
