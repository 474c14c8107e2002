# ruff: noqa: F401, F821, RUF100
"""Tasks that failed for good."""

from tests.waiting import eventually


async def fail_to_charge(customer: int = 0) -> None:
    raise ConnectionError(f"customer {customer}")


async def prepare(docket):
    if await docket.dead.get("order-7") is None:
        await docket.add(fail_to_charge, key="order-7")(customer=7)

    async def is_dead() -> bool:
        return await docket.dead.get("order-7") is not None

    await eventually(is_dead, "order-7 is a dead letter")
