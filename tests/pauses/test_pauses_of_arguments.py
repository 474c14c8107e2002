"""Holding tasks by the value of an argument, which only workers can judge."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from docket import Docket, Keyring, Worker
from docket.errors import NotPaused, ServerUnreachable, Unserializable
from docket.storage.subscriptions import Subscriptions
from docket.strikelist import Operator
from tests.running import run_everything, running, worker_for
from tests.waiting import eventually

from .recorder import Recorder, add_all, held, registered, unpaused, working


async def test_only_tasks_with_that_argument_are_held(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve, "number", "==", 3)
    async with working(docket):
        await add_all(docket, recorder.serve, range(6))
        await held(docket, 1)
        await eventually(lambda: len(recorder.served) == 5, "the others run")
        execution = await docket.get_execution("3")
        assert execution is not None
        assert execution.is_held
        assert await docket.resume(recorder.serve, "number", "==", 3) == 1
        await eventually(lambda: recorder.served[5:] == [3], "it goes on")


async def test_held_tasks_go_on_in_order_whatever_the_order_of_the_runs(docket: Docket, recorder: Recorder) -> None:
    await docket.pause(recorder.serve, "number", ">=", 0)
    async with working(docket, concurrency=50):
        await docket.add_many([docket.call(recorder.serve, key=str(n))(n) for n in range(250)])
        await held(docket, 250)
    assert recorder.served == []
    await docket.resume(recorder.serve, "number", ">=", 0)
    async with working(docket, concurrency=1):
        await docket.add_many([docket.call(recorder.serve, key=str(n))(n) for n in range(250, 300)])
        await unpaused(docket)
        await eventually(lambda: len(recorder.served) == 300, "all run")
    # A newcomer may start among the last batch of held tasks, and not before.
    assert recorder.served[:200] == list(range(200))
    assert [number for number in recorder.served if number < 250] == list(range(250))
    assert [number for number in recorder.served if number >= 250] == list(range(250, 300))


@pytest.mark.parametrize(
    ("operator", "value", "matching"),
    [
        ("!=", 2, [0, 1, 3]),
        (">", 1, [2, 3]),
        ("<=", 1, [0, 1]),
        ("between", (1, 2), [1, 2]),
        (Operator.EQUAL, 1.0, [1]),
    ],
)
async def test_a_pause_compares_as_a_strike_does(
    docket: Docket, recorder: Recorder, operator: Any, value: Any, matching: list[int]
) -> None:
    await docket.pause("*", "number", operator, value)
    await add_all(docket, recorder.serve, range(4))
    await run_everything(docket)
    assert sorted(recorder.served) == [number for number in range(4) if number not in matching]
    assert [pause.held for pause in await docket.pauses()] == [len(matching)]
    await docket.resume("*", "number", operator, value)
    await run_everything(docket)
    assert sorted(recorder.served) == [0, 1, 2, 3]


async def test_defaults_and_keywords_are_compared(docket: Docket, recorder: Recorder) -> None:
    await docket.pause("*", "region", "==", "north")
    await docket.add(recorder.serve)(1)
    await docket.add(recorder.serve)(2, region="south")
    await run_everything(docket)
    assert recorder.served == [2]


async def test_equal_values_are_one_pause(docket: Docket, recorder: Recorder) -> None:
    first = await docket.pause(recorder.serve, "number", "==", 1)
    again = await docket.pause(recorder.serve, "number", "==", 1.0)
    assert again.id == first.id
    assert await docket.resume(recorder.serve, "number", "==", True) == 0
    assert await docket.pauses() == []


async def test_values_come_back_as_they_were(docket: Docket) -> None:
    value = datetime(2026, 1, 14, tzinfo=UTC)
    await docket.pause("serve", "day", "between", (value, value))
    (pause,) = await docket.pauses()
    assert (pause.function, pause.parameter, pause.operator, pause.value) == (
        "serve",
        "day",
        Operator.BETWEEN,
        (value, value),
    )
    assert str(pause).startswith("serve(day between (datetime")


async def test_wrong_rules_are_one_error_and_change_nothing(docket: Docket, recorder: Recorder) -> None:
    with pytest.raises(ValueError, match="is not an operator"):
        await docket.pause(recorder.serve, "number", "like", 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pause serve\(number between 5\): .* must be a pair"):
        await docket.pause(recorder.serve, "number", "between", 5)
    with pytest.raises(Unserializable, match="pause serve"):
        await docket.pause(recorder.serve, "number", "==", object())
    with pytest.raises(ValueError, match="the name of the function is empty"):
        await docket.pause("")
    with pytest.raises(ValueError, match="the name of the parameter is empty"):
        await docket.pause(recorder.serve, "")
    with pytest.raises(NotPaused):
        await docket.resume(recorder.serve, "number", "==", 1)
    assert await docket.pauses() == []


async def test_a_worker_that_missed_the_message_finds_the_rule_with_the_claim(
    docket: Docket, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages about pauses never arrive: the claim reports the version of the rules."""
    channel, listen = docket.keys.pause_channel, Subscriptions.listen

    async def deaf(self: Subscriptions, name: bytes, listener: Any) -> None:
        if name != channel:
            await listen(self, name, listener)

    monkeypatch.setattr(Subscriptions, "listen", deaf)
    async with working(docket):
        for number in range(5):
            await docket.pause(recorder.serve, "number", "==", number)
            await add_all(docket, recorder.serve, [number, number + 100])
            await held(docket, 1)
            await eventually(lambda: len(recorder.served) == 2 * number + 1, "the other one runs")  # noqa: B023
            assert recorder.served[-1] == number + 100
            await docket.resume(recorder.serve, "number", "==", number)
            await eventually(lambda: len(recorder.served) == 2 * number + 2, "it goes on")  # noqa: B023


async def test_a_worker_with_an_outdated_rule_runs_the_task(
    docket: Docket, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks the server, which knows that the pause is over."""
    await docket.pause(recorder.serve, "number", "==", 1)
    async with worker_for(docket) as worker, running(worker):
        await add_all(docket, recorder.serve, [1])
        await held(docket, 1)
        monkeypatch.setattr("docket.worker.running.pause_rules.PauseRules._on_message", lambda self, message: None)
        await docket.resume(recorder.serve, "number", "==", 1)
        await eventually(lambda: recorder.served == [1], "it runs")
        await docket.add(recorder.serve)(1)
        await eventually(lambda: recorder.served == [1, 1], "a new one runs, too")


async def test_a_signed_docket_ignores_rules_that_were_not_signed(name: str, url: str) -> None:
    """Somebody who can write to the server, and has no key, cannot hold tasks by an argument."""
    keyring = Keyring({"k": b"k" * 32})
    async with Docket(name, url) as plain, Docket(name, url, signing=keyring) as signed:
        recorder = registered(signed)
        await plain.pause("serve", "number", "==", 1)
        await signed.pause("serve", "number", "==", 2)
        async with working(signed):
            await add_all(signed, recorder.serve, [1, 2, 3])
            await held(signed, 1)
            await eventually(lambda: sorted(recorder.served) == [1, 3], "the others run")
        unsigned, own = await signed.pauses()
        assert unsigned.problem is not None
        assert not unsigned.needs_other
        assert (own.problem, own.held) == (None, 1)
        assert await signed.resume(unsigned) == 0


async def test_a_worker_without_the_key_of_a_rule_leaves_its_tasks_to_others(name: str, url: str) -> None:
    old, new = {"old": b"o" * 32}, {"new": b"n" * 32, "old": b"o" * 32}
    async with Docket(name, url, signing=Keyring(old)) as behind, Docket(name, url, signing=Keyring(new)) as docket:
        left, recorder = registered(behind), registered(docket)
        await docket.pause(recorder.serve, "number", "==", 1)
        (pause,) = await behind.pauses()
        assert (pause.function, pause.needs_other) == ("serve", True)
        async with working(behind, name="behind"):
            # Sealed with the old key, so that both workers can open the calls.
            await add_all(behind, left.serve, [1, 2])
            await add_all(behind, left.other, [3])
            await eventually(lambda: left.served == [("other", 3)], "a function without a pause runs")

            async def are_left() -> bool:
                return (await behind.ledger.queries.census()).scheduled == 2

            await eventually(are_left, "both tasks wait for another worker")
            async with working(docket, name="current"):
                await held(docket, 1)
                await eventually(lambda: recorder.served == [2], "the other worker judges them")
        assert left.served == [("other", 3)]


async def test_a_sealed_strike_is_not_a_pause(name: str, url: str) -> None:
    keyring = Keyring({"k": b"k" * 32})
    async with Docket(name, url, signing=keyring) as docket:
        recorder = registered(docket)
        pause = await docket.pause(recorder.serve, "number", "==", 1)
        stored = await docket.server.ask(docket.keys.root, "HGET", docket.key("pauses"), pause.id)
        await docket.resume(pause)
        # The bytes of the rule, as a strike.
        sealed = stored[stored.index(b"\xc4") :][2:] if b"\xc4" in stored else stored
        await docket.server.ask(docket.keys.root, "HSET", docket.key("strike-rules"), pause.id, sealed, "version", "1")
        async with Docket(name, url, signing=keyring) as other:
            await other.wait_for_strikes_loaded()
            assert other.strike_list.in_effect == []
            assert pause.id in other.strike_list.unreadable


async def test_a_task_waits_while_the_rules_cannot_be_read(
    docket: Docket, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await docket.pause(recorder.serve, "number", "==", 1)
    read, fails, tried = type(docket.pause_store).read, True, asyncio.Event()

    async def unreliable(self: Any) -> Any:
        if fails:
            tried.set()
            raise ServerUnreachable("away")
        return await read(self)

    async with Worker(docket) as worker, running(worker):
        await add_all(docket, recorder.serve, [1])
        await held(docket, 1)
        monkeypatch.setattr(type(docket.pause_store), "read", unreliable)
        # Another version than the worker has.
        await docket.ledger.run_script("pause", (b"f" * 40, b"", 10, 10_000))
        await add_all(docket, recorder.serve, [2])
        await tried.wait()
        assert recorder.served == []
        fails = False
        await eventually(lambda: recorder.served == [2], "it runs when the rules were read")
