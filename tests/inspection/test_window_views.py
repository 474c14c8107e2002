"""Rate limits, cooldowns and debounces that are in effect: who used them, and who waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import pytest

from docket import Cooldown, Debounce, Docket, Logged, RateLimit, Worker
from docket.inspection.limits import WindowKind, WindowView, read_windows
from tests.running import at_work
from tests.waiting import eventually

HOUR = timedelta(hours=1)


async def rated(limit: RateLimit = RateLimit(2, per=HOUR)) -> None: ...


async def cooled(customer: Annotated[int, Cooldown(HOUR), Logged]) -> None: ...


async def settled(debounce: Debounce = Debounce(HOUR)) -> None: ...


async def plain() -> None: ...


async def windows(docket: Docket) -> dict[WindowKind, WindowView]:
    return {window.kind: window for window in (await read_windows(docket)).windows}


async def test_who_has_used_a_limit_and_who_waits(docket: Docket) -> None:
    assert await windows(docket) == {}
    for function in (rated, cooled, settled, plain):
        docket.register(function)
    async with Worker(docket) as worker, at_work(worker):
        for number in range(4):
            await docket.add(rated, key=f"rated-{number}")()
        await docket.add(cooled, key="cooled")(7)
        await docket.add(settled, key="settled")()
        await docket.add(plain)()

        async def all_are_there() -> bool:
            found = await windows(docket)
            rate = found.get(WindowKind.RATE)
            return len(found) == 3 and rate is not None and (rate.in_use, rate.waiting) == (2, 2)

        await eventually(all_are_there, "two runs of the rate limit began, two wait")
        found = await windows(docket)
    now = docket.now()
    rate = found[WindowKind.RATE]
    assert (rate.function, rate.parameter, rate.most, rate.per) == ("rated", None, 2, HOUR)
    assert {run.key for run in rate.runs} | {waiter.key for waiter in rate.waiters} == {
        f"rated-{number}" for number in range(4)
    }
    assert {waiter.function for waiter in rate.waiters} == {"rated"}
    assert all(now < waiter.until < now + HOUR * 2 for waiter in rate.waiters)
    cooldown = found[WindowKind.COOLDOWN]
    assert (cooldown.parameter, cooldown.function, cooldown.in_use, cooldown.waiting) == ("customer", None, 1, 0)
    assert [run.key for run in cooldown.runs] == ["cooled"]
    assert now < cooldown.ends < now + HOUR * 2
    debounce = found[WindowKind.DEBOUNCE]
    assert (debounce.function, debounce.in_use, debounce.waiting) == ("settled", 0, 1)
    assert [waiter.key for waiter in debounce.waiters] == ["settled"]
    # A waiting task that was cancelled does not wait.
    await docket.cancel("settled")
    assert WindowKind.DEBOUNCE not in await windows(docket)


async def test_the_note_of_limits_is_bounded_and_expires(docket: Docket) -> None:
    docket.register(cooled)
    ledger = docket.ledger
    key = ledger.keys.key("windows").encode()
    now_ms = int(docket.now().timestamp() * 1000)
    full = [part for n in range(1000) for part in (now_ms + 3_600_000, f"1 1000 cooldown:=x{n}".encode())]
    await ledger.server.ask(key, "ZADD", key, *full)
    await docket.add(cooled)(1)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await ledger.server.ask(key, "ZCARD", key) == 1000
    assert await windows(docket) == {}
    # Those that have ended make room.
    await ledger.server.ask(key, "ZADD", key, 1, b"1 1000 cooldown:=x1")
    await docket.add(cooled)(2)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert set(await windows(docket)) == {WindowKind.COOLDOWN}
    assert 3_500_000 < await ledger.server.ask(key, "PTTL", key) < 4_000_000


async def test_pages_of_limits(docket: Docket) -> None:
    docket.register(cooled)
    await docket.add_many(docket.call(cooled)(n) for n in range(5))
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    first = await read_windows(docket, size=3)
    assert (len(first.windows), first.total, first.cursor) == (3, 5, "3")
    second = await read_windows(docket, size=3, cursor=first.cursor)
    assert (len(second.windows), second.cursor) == (2, None)
    assert len({window.name for window in (*first.windows, *second.windows)}) == 5
    for cursor in ("x", "-1", "²", "9" * 30):
        with pytest.raises(ValueError, match="cursor"):
            await read_windows(docket, cursor=cursor)


@pytest.mark.parametrize(
    "member", [b"x", b"1 2 rate:=", b"1 2 nobody:=x", b"a b rate:=x", b"1 99999999999999999999 rate:=x"]
)
async def test_notes_that_somebody_else_has_written_are_left_out(docket: Docket, member: bytes) -> None:
    key = docket.ledger.keys.key("windows").encode()
    await docket.ledger.server.ask(key, "ZADD", key, int(docket.now().timestamp() * 1000) + 60_000, member)
    assert await windows(docket) == {}
