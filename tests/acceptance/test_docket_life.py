"""Opening and closing a docket, its places, and where results go."""

import base64
import pickle
import socket
from datetime import timedelta
from typing import Any

import pytest
from key_value.aio.protocols.key_value import AsyncKeyValueProtocol
from key_value.aio.stores.memory import MemoryStore
from redis.exceptions import ConnectionError as RedisConnectionError

from docket import Docket, ExecutionState
from tests.nodes import keys_like
from tests.running import run_everything
from tests.waiting import eventually


async def answer() -> int:
    return 42


async def test_entering_an_open_docket_is_an_assertion_error(docket: Docket) -> None:
    with pytest.raises(AssertionError):
        async with docket:
            pass

    await docket.add(answer)()


async def test_a_docket_can_be_entered_again_after_it_was_left(name: str, url: str) -> None:
    docket = Docket(name=name, url=url)
    async with docket:
        await docket.add(answer, key="k")()

    async with docket:
        await run_everything(docket)
        execution = await docket.get_execution("k")

        assert execution is not None
        assert await execution.get_result() == 42


async def test_work_outlives_the_docket_object_that_added_it(name: str, url: str) -> None:
    async with Docket(name=name, url=url) as first:
        await first.add(answer, key="k")()

    async with Docket(name=name, url=url) as second:
        second.register(answer)
        await run_everything(second)
        execution = await second.get_execution("k")

        assert execution is not None
        assert execution.state == ExecutionState.COMPLETED


def test_a_docket_without_arguments_is_the_local_one() -> None:
    docket = Docket()

    assert docket.name == "docket"
    assert docket.url == "redis://localhost:6379/0"
    assert docket.heartbeat_interval == timedelta(seconds=2)
    assert docket.missed_heartbeats == 5
    assert docket.execution_ttl == timedelta(minutes=15)


async def test_the_places_of_a_docket_are_under_its_prefix(docket: Docket) -> None:
    name = f"{{{docket.name}}}" if docket.server.is_cluster else docket.name

    assert docket.prefix == name
    assert docket.key("mine") == f"{name}:mine"
    assert docket.stream_key == f"{name}:stream"
    assert docket.worker_group_name == "docket-workers"
    assert docket.queue_key.startswith(f"{name}:")
    assert docket.runs_key("k").startswith(f"{name}:")
    assert docket.workers_set.startswith(f"{name}:")
    assert docket.worker_tasks_set("w").startswith(f"{name}:")
    assert docket.task_workers_set("t").startswith(f"{name}:")


async def test_the_places_of_different_keys_differ(docket: Docket) -> None:
    for place in (docket.runs_key, docket.cancel_channel, docket.worker_tasks_set, docket.task_workers_set):
        assert place("a") != place("b")


@pytest.mark.parametrize("url", ["redis+cluster://localhost:7000", "rediss+cluster://localhost:7000"])
def test_on_a_cluster_the_prefix_keeps_a_docket_in_one_slot(url: str) -> None:
    docket = Docket(name="orders", url=url)

    assert docket.prefix == "{orders}"
    assert docket.key("mine") == "{orders}:mine"
    assert docket.stream_key == "{orders}:stream"


async def test_a_docket_labels_its_measurements(docket: Docket) -> None:
    assert docket.labels() == {"docket.name": docket.name}


async def test_clients_keep_keys_of_their_own_with_a_client_that_speaks_bytes(docket: Docket) -> None:
    async with docket.redis() as redis:
        await redis.set(docket.key("mine"), "value", ex=60)

        assert await redis.get(docket.key("mine")) == b"value"


async def test_results_go_to_the_storage_that_was_given(name: str, url: str) -> None:
    store = MemoryStore()
    async with Docket(name=name, url=url, result_storage=store) as docket:
        execution = await docket.add(answer)()
        await run_everything(docket)

        assert docket.result_storage is store
        assert await execution.get_result() == 42
        assert [await store.keys(collection=place) for place in await store.collections()] == [[execution.result_key]]


async def test_exceptions_come_back_through_the_storage_that_was_given(name: str, url: str) -> None:
    async def burn() -> None:
        raise LookupError("smoke")

    async with Docket(name=name, url=url, result_storage=MemoryStore()) as docket:
        execution = await docket.add(burn)()
        await run_everything(docket)

        with pytest.raises(LookupError, match="smoke"):
            await execution.get_result()


def opened(stored: dict[str, Any] | None) -> Any:
    assert stored is not None
    return pickle.loads(base64.b64decode(stored["data"]))


@pytest.mark.parametrize("value", [42, "x" * 300_000], ids=["small", "large"])
async def test_results_are_read_from_the_storage_of_a_docket_that_was_given_none(docket: Docket, value: Any) -> None:
    async def answer_with() -> Any:
        return value

    execution = await docket.add(answer_with, key="k:1")()
    await run_everything(docket)
    await execution.sync()

    assert execution.result_key is not None
    place, storage = docket.results_collection, docket.result_storage
    assert isinstance(storage, AsyncKeyValueProtocol)
    assert opened(await storage.get(execution.result_key, collection=place)) == value
    assert await storage.get(execution.result_key) is None
    assert await storage.get_many(["unknown"], collection=place) == [None]
    _, seconds = await storage.ttl(execution.result_key, collection=place)
    assert seconds is not None
    assert 0 < seconds <= docket.execution_ttl.total_seconds()


async def test_the_exception_of_a_task_is_read_from_there_too(docket: Docket) -> None:
    async def burn() -> None:
        raise LookupError("smoke")

    execution = await docket.add(burn)()
    await run_everything(docket)
    await execution.sync()

    error = opened(await docket.result_storage.get(execution.result_key, collection=docket.results_collection))
    assert (type(error), error.args) == (LookupError, ("smoke",))


async def test_a_client_puts_the_result_of_a_manual_run_there(docket: Docket) -> None:
    execution = await docket.add(answer, key="k")()
    await execution.claim("by hand")
    data = base64.b64encode(pickle.dumps({"answer": 42})).decode()

    await docket.result_storage.put("mine", {"data": data}, collection=docket.results_collection, ttl=60)
    await execution.mark_as_completed(result_key="mine")

    assert await execution.get_result() == {"answer": 42}
    value, seconds = await docket.result_storage.ttl("mine", collection=docket.results_collection)
    assert (value, 0 < seconds <= 60) == ({"data": data}, True)
    assert await docket.result_storage.delete_many(["mine", "other"], collection=docket.results_collection) == 1


async def test_a_docket_that_is_not_open_has_no_storage_of_its_own(name: str, url: str) -> None:
    docket = Docket(name=name, url=url)
    assert docket.result_storage is None
    async with docket:
        assert docket.result_storage is docket.result_storage
    assert docket.result_storage is None


async def test_a_fire_and_forget_docket_leaves_no_trace_of_a_task(name: str, url: str) -> None:
    ran: list[str] = []

    async def note() -> int:
        ran.append("yes")
        return 42

    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        await docket.add(note, key="fleeting-key")()
        await run_everything(docket)

        assert ran == ["yes"]
        assert await docket.get_execution("fleeting-key") is None
        assert await keys_like(docket, "*fleeting-key*") == []


async def test_a_fire_and_forget_docket_frees_the_key_at_once(name: str, url: str) -> None:
    ran: list[int] = []

    async def note(n: int) -> None:
        ran.append(n)

    async with Docket(name=name, url=url, execution_ttl=timedelta(0)) as docket:
        for n in range(3):
            await docket.add(note, key="k")(n)
            await run_everything(docket)

    assert ran == [0, 1, 2]


async def test_a_record_is_gone_after_the_time_it_may_live(name: str, url: str) -> None:
    async with Docket(name=name, url=url, execution_ttl=timedelta(milliseconds=50)) as docket:
        await docket.add(answer, key="k")()
        await run_everything(docket)

        async def is_gone() -> bool:
            return await docket.get_execution("k") is None

        await eventually(is_gone, "the record is gone")


@pytest.mark.parametrize("caught", [RedisConnectionError, ConnectionError], ids=["client library", "builtin"])
async def test_a_server_that_is_not_there_is_caught_as_its_callers_catch_it(caught: type[Exception]) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody answers there, and nobody else can.
        taken.bind(("127.0.0.1", 0))
        docket = Docket(url=f"redis://127.0.0.1:{taken.getsockname()[1]}/0")
        async with docket:
            with pytest.raises(caught) as raised:
                await docket.snapshot()

    assert "127.0.0.1" in str(raised.value)
    assert "127.0.0.1" in repr(raised.value)


async def test_a_producer_does_not_log_as_a_worker(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Docket(url=f"redis://127.0.0.1:{taken.getsockname()[1]}/0"):
            pass

    assert {record.name for record in caplog.records if record.name.startswith("docket")} == {"docket.storage"}
