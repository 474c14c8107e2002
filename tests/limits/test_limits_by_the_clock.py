"""RateLimit, Cooldown and Debounce to the millisecond, on a clock that the test holds."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from docket import ConcurrencyLimit, Cooldown, CurrentDocket, Debounce, Docket, RateLimit, Retry
from docket.dependencies import AdmissionBlocked, Dependency, current_execution
from docket.testing import Clock
from tests.running import run_everything, worker_for
from tests.waiting import ends

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
START = datetime(2026, 1, 14, 10, 0, tzinfo=UTC)


class RunTimes:
    """Which task ran when, in seconds after the beginning."""

    def __init__(self, docket: Docket) -> None:
        self.docket = docket
        self.entries: list[tuple[str, float]] = []

    def note(self, what: object) -> None:
        self.entries.append((str(what), (self.docket.now() - START).total_seconds()))

    def times(self, what: object = None) -> list[int]:
        return [round(time) for name, time in self.entries if what is None or name == str(what)]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.entries]


@pytest.fixture
def run_times(docket: Docket) -> RunTimes:
    return RunTimes(docket)


async def test_what_is_too_much_is_delayed_until_a_slot_opens(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(2, per=MINUTE)) -> None:
        run_times.note(number)

    with Clock(docket, at=START):
        for number in range(5):
            await docket.add(call)(number)
        await run_everything(docket)

    assert sorted(run_times.names) == list("01234")
    assert run_times.times() == [0, 0, 60, 60, 120]


async def test_the_window_slides(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(2, per=MINUTE)) -> None:
        run_times.note(number)

    with Clock(docket, at=START):
        await docket.add(call, when=START)(0)
        await docket.add(call, when=START + MINUTE / 2)(1)
        await docket.add(call, when=START + MINUTE * 2 / 3)(2)
        await docket.add(call, when=START + MINUTE * 5 / 6)(3)
        await run_everything(docket)

    assert run_times.times() == [0, 30, 60, 90]


async def test_a_rate_on_a_parameter_counts_each_value_for_itself(docket: Docket, run_times: RunTimes) -> None:
    async def call(customer: Annotated[str, RateLimit(1, per=MINUTE)]) -> None:
        run_times.note(customer)

    with Clock(docket, at=START):
        for customer in "aabb":
            await docket.add(call)(customer)
        await run_everything(docket)

    assert run_times.times("a") == [0, 60]
    assert run_times.times("b") == [0, 60]


async def test_what_is_too_much_may_be_dropped(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(2, per=MINUTE, drop=True)) -> None:
        run_times.note(number)

    with Clock(docket, at=START):
        for number in range(5):
            await docket.add(call)(number)
        await run_everything(docket)

    assert len(run_times.entries) == 2


async def test_after_the_window_a_dropping_rate_lets_tasks_through_again(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(1, per=MINUTE, drop=True)) -> None:
        run_times.note(number)

    with Clock(docket, at=START):
        await docket.add(call)(0)
        await docket.add(call, when=START + MINUTE / 2)(1)
        await docket.add(call, when=START + MINUTE * 2)(2)
        await run_everything(docket)

    assert run_times.names == ["0", "2"]


async def test_tasks_without_a_scope_have_rates_of_their_own(docket: Docket, run_times: RunTimes) -> None:
    async def first(rate: RateLimit = RateLimit(1, per=MINUTE)) -> None:
        run_times.note("first")

    async def second(rate: RateLimit = RateLimit(1, per=MINUTE)) -> None:
        run_times.note("second")

    with Clock(docket, at=START):
        await docket.add(first)()
        await docket.add(second)()
        await run_everything(docket)

    assert run_times.times() == [0, 0]


async def test_a_task_that_fails_keeps_its_slot(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(1, per=MINUTE)) -> None:
        run_times.note(number)
        if number == 0:
            raise ValueError("smoke")

    with Clock(docket, at=START):
        await docket.add(call)(0)
        await docket.add(call)(1)
        await run_everything(docket)

    assert run_times.entries[0][0] == "0"
    assert run_times.times() == [0, 60]


async def test_a_retry_needs_a_slot_of_its_own(docket: Docket, run_times: RunTimes) -> None:
    async def call(rate: RateLimit = RateLimit(1, per=MINUTE), retry: Retry = Retry(attempts=2)) -> None:
        run_times.note(retry.attempt)
        raise ValueError("smoke")

    with Clock(docket, at=START):
        await docket.add(call)()
        await run_everything(docket)

    assert run_times.names == ["1", "2"]
    assert run_times.times() == [0, 60]


class Gate(Dependency["Gate"]):
    """Lets nobody in at first."""

    closed = True

    async def __aenter__(self) -> "Gate":
        if Gate.closed:
            raise AdmissionBlocked(current_execution.get(), "the gate is closed", reschedule=False)
        return self


async def test_a_task_that_another_dependency_blocks_frees_its_slot(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(1, per=MINUTE), gate: Gate = Gate()) -> None:
        run_times.note(number)

    Gate.closed = True
    with Clock(docket, at=START):
        async with worker_for(docket) as worker:
            await docket.add(call)(0)
            await ends(worker.run_until_finished())
            Gate.closed = False
            await docket.add(call)(1)
            await ends(worker.run_until_finished())

    assert run_times.entries[0][0] == "1"
    assert run_times.times() == [0]


async def test_a_delayed_task_can_be_cancelled(docket: Docket, run_times: RunTimes) -> None:
    async def call(number: int, rate: RateLimit = RateLimit(1, per=MINUTE)) -> None:
        run_times.note(number)
        if number == 0:
            await docket.cancel("second")

    with Clock(docket, at=START):
        async with worker_for(docket, concurrency=1) as worker:
            await docket.add(call)(0)
            await docket.add(call, key="second", when=START + MINUTE / 2)(1)
            await ends(worker.run_until_finished())

    assert run_times.names == ["0"]


async def test_the_first_runs_and_the_rest_of_the_window_is_dropped(docket: Docket, run_times: RunTimes) -> None:
    async def ring(number: int, cooldown: Cooldown = Cooldown(MINUTE)) -> None:
        run_times.note(number)

    with Clock(docket, at=START):
        for number in range(3):
            await docket.add(ring, when=START + number * MINUTE / 4)(number)
        await docket.add(ring, when=START + MINUTE * 1.5)(9)
        await run_everything(docket)

    assert run_times.names == ["0", "9"]


async def test_a_cooldown_on_a_parameter_is_for_each_value(docket: Docket, run_times: RunTimes) -> None:
    async def ring(customer: Annotated[str, Cooldown(MINUTE)]) -> None:
        run_times.note(customer)

    with Clock(docket, at=START):
        for customer in "aabba":
            await docket.add(ring)(customer)
        await run_everything(docket)

    assert sorted(run_times.names) == ["a", "b"]


async def test_one_run_comes_after_quiet(docket: Docket, run_times: RunTimes) -> None:
    async def index(number: int, debounce: Debounce = Debounce(MINUTE)) -> None:
        run_times.note("index")

    with Clock(docket, at=START):
        for number in range(4):
            await docket.add(index, when=START + number * MINUTE / 2)(number)
        await run_everything(docket)

    assert len(run_times.entries) == 1
    assert run_times.times()[0] == 150


async def test_after_a_debounced_run_the_next_one_settles_again(docket: Docket, run_times: RunTimes) -> None:
    async def index(debounce: Debounce = Debounce(MINUTE)) -> None:
        run_times.note("index")

    with Clock(docket, at=START):
        await docket.add(index)()
        await docket.add(index, when=START + MINUTE * 5)()
        await run_everything(docket)

    assert run_times.times() == [60, 360]


async def test_a_debounce_on_a_parameter_is_for_each_value(docket: Docket, run_times: RunTimes) -> None:
    async def index(customer: Annotated[str, Debounce(MINUTE)]) -> None:
        run_times.note(customer)

    with Clock(docket, at=START):
        for customer in "aabba":
            await docket.add(index)(customer)
        await run_everything(docket)

    assert sorted(run_times.names) == ["a", "b"]
    assert run_times.times() == [60, 60]


@pytest.mark.parametrize(
    "limit",
    [
        RateLimit(1, per=MINUTE, drop=True, scope="bell"),
        Cooldown(MINUTE, scope="bell"),
        Debounce(MINUTE, scope="bell"),
    ],
    ids=["rate", "cooldown", "debounce"],
)
async def test_tasks_of_one_scope_share_what_is_counted_for_a_value(
    docket: Docket, run_times: RunTimes, limit: Any
) -> None:
    async def ring(customer: Annotated[str, limit]) -> None:
        run_times.note(customer)

    async def knock(customer: Annotated[str, limit]) -> None:
        run_times.note(customer)

    with Clock(docket, at=START):
        for function in (ring, knock):
            for customer in "ab":
                await docket.add(function)(customer)
        await run_everything(docket)

    assert sorted(run_times.names) == ["a", "b"]


@pytest.mark.parametrize(
    "limit",
    [
        RateLimit(1, per=MINUTE, drop=True, scope="bell"),
        Cooldown(MINUTE, scope="bell"),
        Debounce(MINUTE, scope="bell"),
    ],
    ids=["rate", "cooldown", "debounce"],
)
async def test_a_limit_for_a_whole_task_with_a_scope_is_for_that_task(
    docket: Docket, run_times: RunTimes, limit: Any
) -> None:
    async def ring(pace: Any = limit) -> None:
        run_times.note("ring")

    async def knock(pace: Any = limit) -> None:
        run_times.note("knock")

    with Clock(docket, at=START):
        for function in (ring, knock, ring, knock):
            await docket.add(function)()
        await run_everything(docket)

    assert sorted(run_times.names) == ["knock", "ring"]


async def test_limits_of_several_kinds_work_together(docket: Docket, run_times: RunTimes) -> None:
    async def call(
        customer: Annotated[str, ConcurrencyLimit(1), RateLimit(2, per=MINUTE)],
    ) -> None:
        run_times.note(customer)

    with Clock(docket, at=START):
        for customer in "aaab":
            await docket.add(call)(customer)
        await run_everything(docket)

    assert run_times.times("a") == [0, 0, 60]
    assert run_times.times("b") == [0]


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
