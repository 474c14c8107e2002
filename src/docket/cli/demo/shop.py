"""A small shop: the tasks of the demo, written like those of any application."""

import asyncio
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated

from docket.annotations import Logged
from docket.dependencies import (
    ConcurrencyLimit,
    Cron,
    CurrentDocket,
    CurrentExecution,
    ExponentialRetry,
    Perpetual,
    Progress,
)
from docket.docket import Docket
from docket.execution import Execution, ExecutionProgress, TaskFunction

COURIERS = ("Falcon", "Heron", "Swift")
COURIER_LINES = 2
PAGES_TO_PRINT = 40


@dataclass
class Diary:
    """The figures for the summary of the demo. Real tasks would keep them in a database."""

    luck: random.Random = field(default_factory=lambda: random.Random(7))
    start_lateness: list[float] = field(default_factory=list[float])
    receipt_lateness: list[float] = field(default_factory=list[float])
    declined: int = 0
    lines_in_use: dict[str, int] = field(default_factory=dict[str, int])
    most_lines: int = 0
    indexed: int = 0
    indexed_at: float = 0.0


diary: Diary = Diary()


def lateness(execution: Execution) -> float:
    """The seconds between the due time and the start of a task."""
    return (datetime.now(UTC) - execution.when).total_seconds()


async def place_order(
    order: Annotated[str, Logged], docket: Docket = CurrentDocket(), execution: Execution = CurrentExecution()
) -> None:
    """Takes an order, and adds the task for the next step."""
    diary.start_lateness.append(lateness(execution))
    await asyncio.sleep(diary.luck.uniform(0.02, 0.1))
    await docket.add(charge_card, key=f"charge {order}")(order)


async def charge_card(
    order: Annotated[str, Logged],
    docket: Docket = CurrentDocket(),
    retry: ExponentialRetry = ExponentialRetry(
        attempts=5, minimum_delay=timedelta(seconds=0.5), maximum_delay=timedelta(seconds=2)
    ),
) -> None:
    """Fails now and then, as payment providers do. docket retries it."""
    await asyncio.sleep(diary.luck.uniform(0.05, 0.2))
    if retry.attempt < 4 and diary.luck.random() < 0.25:
        diary.declined += 1
        raise ConnectionError("the payment provider does not answer")
    await docket.add(book_courier, key=f"courier {order}")(order, diary.luck.choice(COURIERS))
    soon = datetime.now(UTC) + timedelta(seconds=2)
    await docket.add(send_receipt, when=soon, key=f"receipt {order}")(order)


async def book_courier(
    order: Annotated[str, Logged], courier: Annotated[str, Logged, ConcurrencyLimit(COURIER_LINES)]
) -> None:
    """Each courier has two telephone lines. Further calls wait and do not occupy a worker."""
    in_use = diary.lines_in_use[courier] = diary.lines_in_use.get(courier, 0) + 1
    diary.most_lines = max(diary.most_lines, in_use)
    await asyncio.sleep(diary.luck.uniform(0.4, 0.8))
    diary.lines_in_use[courier] -= 1


async def send_receipt(order: Annotated[str, Logged], execution: Execution = CurrentExecution()) -> None:
    """Scheduled for two seconds after the payment."""
    diary.receipt_lateness.append(lateness(execution))
    await asyncio.sleep(0.02)


async def print_catalogue(pages: int = PAGES_TO_PRINT, progress: ExecutionProgress = Progress()) -> str:
    """Takes some seconds, and reports its progress."""
    await progress.set_total(pages)
    for page in range(1, pages + 1):
        await asyncio.sleep(0.25)
        await progress.increment()
        await progress.set_message(f"page {page} is printed")
    return f"{pages} pages"


async def index_page(page: int) -> None:
    """One of many small tasks."""
    diary.indexed += 1
    diary.indexed_at = asyncio.get_running_loop().time()


async def count_stock(every: Perpetual = Perpetual(every=timedelta(seconds=2), automatic=True)) -> None:
    """Runs every two seconds."""
    await asyncio.sleep(0.05)


async def close_the_books(at: Cron = Cron("* * * * *")) -> None:
    """Runs at every full minute."""
    await asyncio.sleep(0.1)


async def call_the_old_warehouse(order: Annotated[str, Logged]) -> None:
    """Fails, and has no retry."""
    await asyncio.sleep(0.1)
    raise RuntimeError("the old warehouse has been torn down")


tasks: list[TaskFunction] = [
    place_order,
    charge_card,
    book_courier,
    send_receipt,
    print_catalogue,
    index_page,
    count_stock,
    close_the_books,
    call_the_old_warehouse,
]
