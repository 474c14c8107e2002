# ruff: noqa: F401, F821, RUF100
"""The customers and times of the page, and its store."""

customers = ["acme", "globex"]
week = 46
tonight = datetime.now(UTC) + timedelta(hours=8)


async def send_newsletter(customer: str) -> None: ...


async def store(name: str, args: object, kwargs: object) -> None: ...
