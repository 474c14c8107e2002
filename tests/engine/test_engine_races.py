"""Many processes, one folder: exactly one server, nothing lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.waiting import eventually_blocking

pytestmark = pytest.mark.faults

RACER = """
import redis
engine = FolderEngine(folder)
say("ready")
wait()
client = connect(engine.start())
for _ in range(100):
    client.incr("count")
say(client.info("server")["run_id"])
wait()
engine.stop()
"""

COMER_AND_GOER = """
import random, redis
say("ready")
wait()
for _ in range(15):
    engine = FolderEngine(folder)
    client = connect(engine.start())
    for _ in range(10):
        client.incr("count")
    client.close()
    engine.stop()
    time.sleep(random.uniform(0, 0.15))
say("done")
"""

PHOENIX = """
import redis
engine = FolderEngine(folder)
client = connect(engine.start())
say("ready")
wait()
engine.ensure()
say(client.info("server")["run_id"])
wait()
engine.stop()
"""


def test_eight_processes_that_start_at_once_get_one_server(harness: Any) -> None:
    racers = [harness.child(RACER) for _ in range(8)]
    for racer in racers:
        racer.hear()
    for racer in racers:
        racer.go_on()
    assert len({racer.hear() for racer in racers}) == 1
    assert len(harness.servers()) == 1
    assert len(harness.keepers()) == 1
    assert harness.connect(harness.engine().start()).get("count") == "800"


def test_eight_processes_that_lose_their_server_at_once_get_one_new_server(harness: Any) -> None:
    users = [harness.child(PHOENIX) for _ in range(8)]
    for user in users:
        user.hear()
    client = harness.connect(harness.engine().start())
    client.set("key", "value")
    harness.kill(*harness.servers())
    for user in users:
        user.go_on()
    assert len({user.hear() for user in users}) == 1
    assert len(harness.servers()) == 1
    assert client.get("key") == "value"


def test_users_that_come_and_go_while_the_server_stops_lose_nothing(harness: Any, monkeypatch: Any) -> None:
    # Hardly any linger time, so that servers stop all the time; two on one file would lose counts.
    monkeypatch.setenv("DOCKET_ENGINE_LINGER", "0.01")
    users = [harness.child(COMER_AND_GOER) for _ in range(3)]
    for user in users:
        user.hear()
    for user in users:
        user.go_on()
    for user in users:
        assert user.hear() == "done"
    assert harness.connect(harness.engine().start()).get("count") == str(3 * 15 * 10)


def test_threads_of_one_process_get_one_server(harness: Any) -> None:
    user = harness.child(
        """
engines = [FolderEngine(folder) for _ in range(8)]
threads = [threading.Thread(target=engine.start) for engine in engines]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(len({engine.ensure() for engine in engines}))
wait()
"""
    )
    assert user.hear() == "1"
    assert len(harness.servers()) == 1
    assert len(eventually_blocking(harness.keepers, "there is a keeper")) == 1
