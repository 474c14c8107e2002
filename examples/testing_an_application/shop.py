"""A small shop that uses background tasks for work
that takes long, may fail, or is due later."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from docket import Cron, CurrentDocket, Debounce, Depends, Docket, Retry

REMIND_AFTER = timedelta(days=7)


class CardDeclined(Exception):
    """The card may work tomorrow."""


class World:
    """The services outside the shop: the bank, the mail,
    the search engine. Tests replace them."""

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
    """The web page calls this."""
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
    """Runs every night at half past two, Berlin time."""
    await world.mail(f"sales up to {docket.now().isoformat()}")


async def index_product(
    product: Annotated[str, Debounce(timedelta(seconds=30))], world: World = Depends(the_world)
) -> None:
    """Runs when the editor has been quiet for half a minute."""
    await world.index(product)


tasks = [charge_card, remind, report_sales, index_product]
