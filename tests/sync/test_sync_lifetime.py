"""When a sync docket opens and closes, and what errors it raises."""

from __future__ import annotations

import asyncio
import gc
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from docket import Docket as AsyncDocket
from docket import NotOpen, ServerUnreachable, ServerUnsuitable, UnknownScheme, Worker, WouldDeadlock
from docket.sync import Docket
from docket.sync.producer import Producer
from docket.testing.servers import ServerProcess
from tests.times import later
from tests.waiting import SECONDS, WAIT_LIMIT, eventually_blocking

from .programs import run
from .tasks import double
from .workers import working


def test_a_docket_opens_when_it_is_first_used(docket: Docket) -> None:
    assert not docket.is_open
    docket.add(double, when=later())(1)
    assert docket.is_open


def test_a_with_block_opens_and_closes_it(name: str, url: str) -> None:
    with Docket(name, url) as docket:
        assert docket.is_open
        docket.add(double, when=later(), key="one")(1)
    assert not docket.is_open
    with pytest.raises(NotOpen, match=r"open it again with docket.open\(\)"):
        docket.add(double)(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda docket: docket.add(double, when=later())(1),
        lambda docket: docket.add_many([docket.call(double)(1)]),
        lambda docket: docket.get_execution("one"),
        lambda docket: docket.snapshot(),
        lambda docket: list(docket.watch("one")),
    ],
    ids=["add", "add_many", "get_execution", "snapshot", "watch"],
)
def test_a_call_that_meets_the_close_of_another_thread_says_how_to_open_the_docket(
    name: str, url: str, call: Callable[[Docket], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    docket = Docket(name, url).open()
    producer: Producer = vars(docket)["_producer"]
    session = producer.session()
    docket.close()
    # The call had its session before the docket was closed.
    monkeypatch.setattr(producer, "session", lambda: session)
    with pytest.raises(NotOpen, match=r"open it again with docket.open\(\) or `with docket:`"):
        call(docket)


def test_a_closed_docket_may_be_opened_again(name: str, url: str) -> None:
    docket = Docket(name, url)
    docket.close()
    with pytest.raises(NotOpen):
        docket.get_execution("one")
    execution = docket.open().add(double, when=later(), key="one")(1)
    docket.close()
    docket.close()

    with docket:
        execution.sync()
        assert docket.get_execution("one") is not None


def test_a_docket_has_the_settings_of_the_async_one(url: str) -> None:
    docket = Docket("settings", url, execution_ttl=timedelta(0), max_payload=100)
    assert (docket.name, docket.url) == ("settings", url)
    with pytest.raises(ValueError, match="missed_heartbeats"):
        Docket("settings", url, missed_heartbeats=0)
    with pytest.raises(UnknownScheme):
        Docket("settings", "ftp://localhost")


def test_a_server_that_cannot_be_reached_is_a_typed_error_in_the_callers_line(server: ServerProcess, name: str) -> None:
    docket = Docket(name, server.url, add_patience=timedelta(0))
    for _ in range(3):
        docket.add(double, when=later())(1)
    server.kill()

    for call in (lambda: docket.add(double)(1), lambda: docket.cancel("one"), lambda: docket.get_execution("one")):
        with pytest.raises(ServerUnreachable) as caught:
            call()
        assert traceback.extract_tb(caught.value.__traceback__)[1].filename == __file__
    (failed,) = docket.add_many([docket.call(double)(1)])
    assert isinstance(failed.schedule_exception, ServerUnreachable)
    docket.close()


def test_a_docket_opens_while_its_server_is_away_and_works_when_it_is_back(server: ServerProcess, name: str) -> None:
    server.kill()
    with Docket(name, server.url, add_patience=timedelta(0)) as docket:
        with pytest.raises(ServerUnreachable):
            docket.add(double)(1)
        server.start()

        def added() -> bool:
            try:
                docket.add(double, when=later())(1)
            except ServerUnreachable:
                return False
            return True

        eventually_blocking(added, "the docket reaches the server")
        assert added()


def test_an_add_is_repeated_while_the_server_restarts(server: ServerProcess, name: str) -> None:
    with Docket(name, server.url, add_patience=timedelta(seconds=SECONDS)) as docket:
        for _ in range(2):
            docket.add(double, when=later())(1)
        server.kill()
        keys: list[str] = []
        adding = threading.Thread(target=lambda: keys.append(docket.add(double, when=later())(1).key))
        adding.start()
        server.start()
        adding.join(SECONDS)
        assert docket.get_execution(keys[0]) is not None


def test_a_connection_that_the_server_has_closed_is_noticed_before_an_add(server: ServerProcess, name: str) -> None:
    """After the add, nobody could tell whether it arrived: a task with a key of one's own could not
    be repeated."""
    with Docket(name, server.url, add_patience=timedelta(0)) as docket:
        for number in range(5):
            docket.add(double, when=later(), key=str(number))(1)
            server.run("CLIENT", "KILL", "TYPE", "normal")
        assert docket.snapshot().total_tasks == 5


def test_a_wrong_password_is_told_when_the_docket_opens(name: str) -> None:
    with ServerProcess("--requirepass", "right", tcp=True) as server:
        docket = Docket(name, server.url.replace("redis://", "redis://:wrong@"))
        for _ in range(2):
            with pytest.raises(ServerUnsuitable):
                docket.open()
            with pytest.raises(ServerUnsuitable):
                docket.add(double)(1)


def test_threads_that_wait_hear_that_the_docket_was_closed(docket: Docket) -> None:
    execution = docket.add(double, when=later())(1)
    errors: list[Exception] = []

    def wait() -> None:
        try:
            execution.get_result()
        except Exception as error:
            errors.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    docket.close()
    waiter.join(SECONDS)
    assert [type(error) for error in errors] == [NotOpen]


def test_a_docket_that_is_dropped_gives_its_connections_back(server: ServerProcess, name: str) -> None:
    def connections() -> int:
        return len(server.run("CLIENT", "LIST").splitlines())

    before = connections()
    docket = Docket(name, server.url)
    for _ in range(2):
        docket.add(double, when=later())(1)
    assert connections() > before
    del docket
    gc.collect()
    eventually_blocking(lambda: connections() == before, "the connections are gone", seen=connections)


def test_all_dockets_of_a_process_share_one_thread(name: str, url: str) -> None:
    with Docket(name, url), Docket(f"{name}-2", url):
        threads = [thread for thread in threading.enumerate() if thread.name == "docket - sync producers"]
    assert len(threads) == 1


def test_a_program_that_forgets_to_close_ends_at_once_and_says_nothing(server: ServerProcess) -> None:
    run("add('one')\nadd('two')\ndocket.add_many([docket.call(double)(1)])", server.url)


def test_a_program_ends_while_a_daemon_thread_waits_for_a_result(server: ServerProcess) -> None:
    run(
        """
execution = docket.add(double)(1)
threading.Thread(target=execution.get_result, daemon=True).start()
channel = lambda: execution.key.encode() in b"".join(client.pubsub_channels())
client = __import__("redis").Redis.from_url(url)
eventually_blocking(channel, "the thread listens")
client.close()
""",
        server.url,
    )


def test_a_program_ends_while_its_server_is_away(server: ServerProcess) -> None:
    run(
        "add('one')\nadd('two')\nos.kill(int(os.environ['SERVER']), signal.SIGSTOP)", server.url, SERVER=str(server.pid)
    )


@pytest.mark.parametrize("call", ["docket.add(stay)().get_result()", "list(docket.add(stay)().subscribe())"])
def test_ctrl_c_ends_a_wait_and_the_docket_goes_on(server: ServerProcess, call: str) -> None:
    run(
        f"""
def interrupt():
    eventually_blocking(lambda: docket.snapshot().total_tasks, "the task is added")
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    {call}
except KeyboardInterrupt:
    assert docket.snapshot().total_tasks == 1
    add("later")
    add("last")
else:
    raise AssertionError("not interrupted")
""",
        server.url,
    )


def test_ctrl_c_during_an_add_leaves_a_docket_that_works(server: ServerProcess) -> None:
    run(
        """
add("one")
add("two")
os.kill(int(os.environ["SERVER"]), signal.SIGSTOP)
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    add("interrupted")
except KeyboardInterrupt:
    os.kill(int(os.environ["SERVER"]), signal.SIGCONT)
else:
    raise AssertionError("not interrupted")
assert add("three") == "three"
assert add("four") == "four"
assert docket.get_execution("two").args == ("two",)
""",
        server.url,
        SERVER=str(server.pid),
    )


async def test_calls_work_in_the_thread_of_a_running_event_loop(docket: Docket, name: str, url: str) -> None:
    """As in a notebook."""
    execution = docket.add(double, key="one")(1)
    docket.add_many([docket.call(double)(number) for number in range(3)])
    with working(name, url):
        assert execution.get_result(timeout=WAIT_LIMIT) == 2
    assert docket.get_execution("one") is not None


async def test_a_wait_that_would_block_a_worker_is_refused(docket: Docket, name: str, url: str) -> None:
    execution = docket.add(double)(1)
    async with AsyncDocket(name, url) as inner, Worker(inner) as worker:
        inner.register(double)
        run = asyncio.create_task(worker.run_forever())
        with pytest.raises(WouldDeadlock, match="use the async Docket in coroutines"):
            execution.get_result(timeout=WAIT_LIMIT)
        assert await asyncio.to_thread(lambda: execution.get_result(timeout=WAIT_LIMIT)) == 2
        run.cancel()
        await asyncio.wait([run])
    assert execution.get_result(timeout=WAIT_LIMIT) == 2


def test_a_call_that_would_wait_for_itself_is_refused(docket: Docket) -> None:
    async def call_back() -> None:
        docket.cancel("one")

    with pytest.raises(RuntimeError, match="would wait for itself"):
        docket._producer.run(lambda inner: call_back())
