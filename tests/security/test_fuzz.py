"""Random bytes in every place that is read: no error but docket's own, and no worker
ends."""

import contextlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docket import Docket, Worker
from docket.codec.packing import pack_for_script
from docket.errors import DocketError
from tests.running import at_work
from tests.waiting import eventually, within

from .damage import PLACES, RUN, TASK, Place, damaged

# In sixteen places: 20,800 cases.
CASES = 1_300


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_damaged_bytes_raise_no_error_but_our_own(place: Place) -> None:
    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.one_of(st.binary(max_size=200), st.integers(0, 2**64).map(lambda seed: _damaged(place, seed))))
    def check(data: bytes) -> None:
        with contextlib.suppress(DocketError):
            place.read(data)

    check()


def _damaged(place: Place, seed: int) -> bytes:
    return damaged(place.sound, random.Random(seed))


async def work(number: int) -> int:
    return number


@pytest.mark.parametrize("seed", range(3))
async def test_a_worker_survives_damaged_data(docket: Docket, worker: Worker, seed: int) -> None:
    """Damaged tasks, also under keys that are not text, run records, progress, strikes and
    messages, while the worker works."""
    chance, keys = random.Random(seed), docket.keys
    docket.register(work)
    async with at_work(worker):
        pipe = docket.server.client.pipeline(transaction=False)
        for number in range(60):
            key = chance.choice((f"damaged {number}".encode(), chance.randbytes(5)))
            pipe.hset(keys.tasks, key, damaged(TASK, chance))
            pipe.xadd(keys.stream, {b"k": key})
            pipe.hset(docket.key("running"), f"run {number}", damaged(RUN, chance))
            pipe.hset(docket.key("progress"), key, chance.randbytes(20))
            pipe.hset(keys.strikes, chance.randbytes(5), chance.randbytes(40))
            for channel in (keys.delivery_channel(worker.id), keys.worker_channel(worker.id), keys.strike_channel):
                pipe.publish(channel, damaged(TASK, chance))
        await pipe.execute()
        genuine = [await docket.add(work)(number) for number in range(10)]
        assert [await within(execution.get_result()) for execution in genuine] == list(range(10))
        await docket.snapshot()
        async with Docket(docket.name, docket.url) as other:
            assert await within((await other.add(work)(7)).get_result()) == 7
        assert worker.health_problem() is None


# Deliveries whose fields have other types than those that scripts send.
CONFUSED: list[tuple[object, ...]] = [
    (b"k", TASK, [7], 1, 2),
    (b"k", TASK, b"7", 1, 2),
    (b"k", TASK, 7, b"soon", b"late"),
    (b"k", {b"a": 1}, 7, 1, 2),
    ([b"k"], TASK, -7, 1, 2),
]


async def test_a_worker_survives_confused_deliveries_with_the_secret_of_its_offer(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reads the keys of the docket knows the secret. Without signing he may run tasks, but
    he must not end the worker."""
    client, seen = docket.server.client, set[bytes]()
    docket.register(work)

    async def new_secret() -> bytes | None:
        """The secret of an offer that was not used yet. A genuine task makes the worker offer
        again."""
        secret = await client.hget(docket.key("offer-secrets"), worker.id)
        if secret is None or secret in seen:
            assert await within((await docket.add(work)(1)).get_result()) == 1
            return None
        seen.add(secret)
        return secret

    async with at_work(worker):
        for confused in CONFUSED:
            secret = await eventually(new_secret, "the worker offers a slot")
            assert secret is not None
            await client.publish(docket.keys.delivery_channel(worker.id), secret + pack_for_script(confused))
        genuine = [await docket.add(work)(number) for number in range(10)]
        assert [await within(execution.get_result()) for execution in genuine] == list(range(10))
        assert worker.health_problem() is None
    assert [record for record in caplog.records if record.exc_info] == []
