"""The tasks of the shop that the pages speak of."""

import os
from datetime import date
from typing import Annotated

from docket import Logged


class SMTPError(Exception): ...


class Unavailable(Exception): ...


async def send_mail(customer: Annotated[int | str, Logged] = "acme", amount: int = 0, sent: date | None = None) -> None:
    if "MAIL_SERVER_IS_DOWN" in os.environ:
        raise SMTPError("the mail server is away")


async def download(url: str) -> None:
    raise Unavailable(url)


async def ship(order: str, weight: float = 1.0) -> None: ...


tasks = [send_mail, download, ship]
