# ruff: noqa: F401, F821, RUF100
"""Runs that have ended, for statistics and the history."""

from tests.waiting import eventually


async def prepare(docket):
    await (await docket.add(send_mail)("ann")).get_result()

    async def is_counted() -> bool:
        return bool(await docket.history(limit=1))

    await eventually(is_counted, "the history has a run")
