"""The shop's tests. `docket`, `worker` and `clock` are fixtures of docket. The time stands still
unless a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import shop

from docket import Docket, Worker
from docket.testing import Clock, assert_no_tasks, assert_task_count, assert_task_not_scheduled, assert_task_scheduled


class QuietWorld(shop.World):
    """Records the calls, and declines a given number of cards."""

    def __init__(self) -> None:
        self.declines = 0
        self.attempts = 0
        self.mails: list[str] = []
        self.indexed: list[str] = []

    async def charge(self, order: str) -> str:
        self.attempts += 1
        if self.attempts <= self.declines:
            raise shop.CardDeclined(order)
        return f"receipt for {order}"

    async def mail(self, text: str) -> None:
        self.mails.append(text)

    async def index(self, product: str) -> None:
        self.indexed.append(product)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> QuietWorld:
    world = QuietWorld()
    monkeypatch.setattr(shop, "world", world)
    return world


async def test_an_order_is_charged_now_and_reminded_of_in_a_week(docket: Docket, clock: Clock) -> None:
    await shop.place_order(docket, "books")

    await assert_task_scheduled(docket, shop.charge_card, args=("books",), key="charge-books")
    await assert_task_scheduled(docket, shop.remind, key="remind-books")
    await assert_task_count(docket, count=2)
    reminder = await docket.get_execution("remind-books")
    assert reminder is not None
    assert reminder.when == clock.now() + timedelta(days=7)


async def test_a_paid_order_is_not_reminded_of(docket: Docket, worker: Worker, world: QuietWorld) -> None:
    await shop.place_order(docket, "books")

    await worker.run_until_finished()

    await assert_no_tasks(docket)
    assert world.mails == []


async def test_a_declined_card_is_charged_again_a_day_later(docket: Docket, clock: Clock, world: QuietWorld) -> None:
    world.declines = 1
    await shop.place_order(docket, "books")
    charge = await docket.get_execution("charge-books")
    assert charge is not None

    await clock.advance()
    assert world.attempts == 1

    await clock.advance(timedelta(hours=23, minutes=59))
    assert world.attempts == 1

    await clock.advance(timedelta(minutes=1))
    assert world.attempts == 2
    assert await charge.get_result() == "receipt for books"
    await assert_task_not_scheduled(docket, shop.remind)


async def test_who_never_pays_is_reminded_after_a_week(docket: Docket, clock: Clock, world: QuietWorld) -> None:
    world.declines = 3
    await shop.place_order(docket, "books")

    await clock.advance(timedelta(days=7))

    assert world.attempts == 3
    assert world.mails == ["please pay for books"]
    await assert_no_tasks(docket)


async def test_sales_are_reported_every_night_also_when_the_clocks_go_forward(
    docket: Docket, clock: Clock, world: QuietWorld
) -> None:
    docket.register(shop.report_sales)
    clock.set(datetime(2026, 3, 27, 12, tzinfo=UTC))

    await clock.advance(timedelta(days=4))

    assert world.mails == [
        "sales up to 2026-03-28T01:30:00+00:00",
        # There is no half past two that night: the clocks go from two to three.
        "sales up to 2026-03-29T01:00:00+00:00",
        "sales up to 2026-03-30T00:30:00+00:00",
        "sales up to 2026-03-31T00:30:00+00:00",
    ]


async def test_sales_are_reported_once_in_the_night_when_the_clocks_go_back(
    docket: Docket, clock: Clock, world: QuietWorld
) -> None:
    docket.register(shop.report_sales)
    clock.set(datetime(2026, 10, 24, 12, tzinfo=UTC))

    await clock.advance(timedelta(days=2))

    assert world.mails == ["sales up to 2026-10-25T00:30:00+00:00", "sales up to 2026-10-26T01:30:00+00:00"]


async def test_a_burst_of_edits_leads_to_one_update_of_the_index(
    docket: Docket, clock: Clock, world: QuietWorld
) -> None:
    for _ in range(5):
        await docket.add(shop.index_product)("lamp")
        await clock.advance(timedelta(seconds=10))
    await docket.add(shop.index_product)("chair")
    await clock.advance(timedelta(seconds=10))
    assert world.indexed == []

    await clock.advance(timedelta(minutes=1))

    assert sorted(world.indexed) == ["chair", "lamp"]
