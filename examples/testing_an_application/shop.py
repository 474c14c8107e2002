"""A small shop that leaves to background tasks
whatever takes long, may fail, or has its own time."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from docket import Cron, CurrentDocket, Debounce, Depends, Docket, Retry

REMIND_AFTER = timedelta(days=7)


class CardDeclined(Exception):
    """Perhaps there is money on the account tomorrow."""


class World:
    """What is outside the shop: the bank, the mail,
    the search engine. Tests use one of their own."""

    async def charge(self, order: str) -> str:
        raise NotImplementedError

    async def mail(self, text: str) -> None:
        raise NotImplementedError

    async def index(self, product: str) -> None:
        raise NotImplementedError


world = World()


def the_world() -> World:
    return world


async def place_order(docket: Docket, order: str) -> None:
    """What the web page calls."""
    await docket.add(charge_card, key=f"charge-{order}")(order)
    await docket.add(remind, when=docket.now() + REMIND_AFTER, key=f"remind-{order}")(order)


async def charge_card(
    order: str,
    retry: Retry = Retry(attempts=3, delay=timedelta(days=1)),
    docket: Docket = CurrentDocket(),
    world: World = Depends(the_world),
) -> str:
    receipt = await world.charge(order)
    await docket.cancel(f"remind-{order}")
    return receipt


async def remind(order: str, world: World = Depends(the_world)) -> None:
    await world.mail(f"please pay for {order}")


async def report_sales(
    cron: Cron = Cron("30 2 * * *", tz=ZoneInfo("Europe/Berlin")),
    docket: Docket = CurrentDocket(),
    world: World = Depends(the_world),
) -> None:
    """Every night at half past two, Berlin time."""
    await world.mail(f"sales up to {docket.now().isoformat()}")


async def index_product(
    product: Annotated[str, Debounce(timedelta(seconds=30))], world: World = Depends(the_world)
) -> None:
    """Once the editor has been quiet for half a minute."""
    await world.index(product)


tasks = [charge_card, remind, report_sales, index_product]
