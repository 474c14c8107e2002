"""Limits to the millisecond, on a clock that the test holds."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from docket import Cooldown, CurrentDocket, Debounce, Docket, RateLimit
from docket.testing import Clock

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


class Minutes:
    """When tasks began, in minutes since the first look."""

    def __init__(self, clock: Clock) -> None:
        self._start = clock.now()
        self.began: list[tuple[Any, float]] = []

    def note(self, who: Any, now: datetime) -> None:
        self.began.append((who, round((now - self._start) / MINUTE, 3)))

    @property
    def times(self) -> list[float]:
        return [at for _, at in self.began]


async def test_a_sliding_window_is_exact(docket: Docket, clock: Clock) -> None:
    minutes = Minutes(clock)

    async def call(n: int, limit: RateLimit = RateLimit(2, per=MINUTE), home: Docket = CurrentDocket()) -> None:
        minutes.note(n, home.now())

    await docket.add(call)(0)
    await clock.advance(SECOND * 30)
    for n in range(1, 6):
        await docket.add(call)(n)
    await clock.advance(SECOND * 29)
    assert minutes.times == [0, 0.5]
    await clock.advance(MINUTE * 10)
    assert minutes.times == [0, 0.5, 1, 1.5, 2, 2.5]


async def test_hundreds_too_many_each_get_a_turn(docket: Docket, clock: Clock) -> None:
    minutes = Minutes(clock)

    async def call(n: int, limit: RateLimit = RateLimit(10, per=MINUTE), home: Docket = CurrentDocket()) -> None:
        minutes.note(n, home.now())

    await docket.add_many([docket.call(call)(n) for n in range(300)])
    await clock.advance(timedelta(hours=1))
    assert sorted(n for n, _ in minutes.began) == list(range(300))
    assert minutes.times == [n // 10 for n in range(300)]


async def test_a_cooldown_ends_to_the_millisecond(docket: Docket, clock: Clock) -> None:
    minutes = Minutes(clock)

    async def refresh(n: int, cooldown: Cooldown = Cooldown(MINUTE), home: Docket = CurrentDocket()) -> None:
        minutes.note(n, home.now())

    for n, at in enumerate((0, 59.999, 60.0, 119.999, 120.0)):
        await docket.add(refresh, when=clock.now() + SECOND * at)(n)
    await clock.advance(MINUTE * 10)
    assert [n for n, _ in minutes.began] == [0, 2, 4]


async def test_a_debounce_runs_when_it_has_been_quiet_long_enough(docket: Docket, clock: Clock) -> None:
    minutes = Minutes(clock)

    async def index(
        shop: Annotated[str, Debounce(MINUTE, latest=True)], n: int, home: Docket = CurrentDocket()
    ) -> None:
        minutes.note((shop, n), home.now())

    for n, at in enumerate((0, 30, 75, 134)):
        await docket.add(index, when=clock.now() + SECOND * at)("a", n)
    await docket.add(index, when=clock.now() + SECOND * 10)("b", 9)
    await clock.advance(timedelta(hours=1))
    assert minutes.began == [(("b", 9), round(70 / 60, 3)), (("a", 3), round(194 / 60, 3))]


async def test_two_rates_at_once_are_exact(docket: Docket, clock: Clock) -> None:
    minutes = Minutes(clock)

    async def call(
        n: int,
        burst: RateLimit = RateLimit(2, per=MINUTE),
        steady: RateLimit = RateLimit(3, per=MINUTE * 10),
        home: Docket = CurrentDocket(),
    ) -> None:
        minutes.note(n, home.now())

    await docket.add_many([docket.call(call)(n) for n in range(6)])
    await clock.advance(timedelta(hours=2))
    assert sorted(n for n, _ in minutes.began) == list(range(6))
    for limit, per in ((2, 1), (3, 10)):
        assert all(b - a >= per for a, b in zip(minutes.times, minutes.times[limit:], strict=False)), minutes.times
