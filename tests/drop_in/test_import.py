"""Switching from pydocket with work waiting: nothing
is deleted, and `docket import` takes it over."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from docket import Docket, ExecutionState
from docket.cli.import_command import show
from docket.ledger.foreign import Imported
from tests.running import run_everything, running, worker_for
from tests.waiting import eventually

from .leftovers import LATER, leave_queued, leave_scheduled, leave_taken, left, now

seen: list[Any] = []


async def note(*args: Any, **kwargs: Any) -> None:
    seen.append((args, kwargs))


@pytest.fixture(autouse=True)
def _forget() -> None:
    seen.clear()


@pytest.fixture
def knowing(docket: Docket) -> Docket:
    docket.register(note)
    return docket


async def test_opening_says_what_pydocket_left_and_changes_nothing(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    await leave_scheduled(docket, "one", "note", when=now() + LATER)
    await leave_queued(docket, "two", "note")
    with caplog.at_level(logging.WARNING, "docket.foreign"):
        async with Docket(name=docket.name, url=docket.url):
            pass

    assert [record.name for record in caplog.records] == ["docket.foreign"]
    assert "pydocket has stored 2 tasks" in caplog.text
    assert f"docket import --docket {docket.name}" in caplog.text
    assert len(await left(docket)) == 3
    assert (await docket.ledger.foreign.count()).total == 2


async def test_opening_says_nothing_about_tasks_of_docket(knowing: Docket, caplog: pytest.LogCaptureFixture) -> None:
    await knowing.add(note)()
    await knowing.add(note, when=now() + LATER)()
    async with Docket(name=knowing.name, url=knowing.url):
        pass

    assert not caplog.records


async def test_tasks_are_taken_over_with_key_time_and_arguments(knowing: Docket) -> None:
    when = now() + LATER
    await leave_scheduled(knowing, "later", "note", "ada", when=when, number=5)
    await leave_queued(knowing, "ready", "note", 1, two=2)

    assert await knowing.ledger.foreign.take_over(knowing.payloads) == Imported(scheduled=1, queued=1)
    found = await knowing.get_execution("later")
    assert found is not None
    assert (found.function_name, found.args, found.kwargs) == ("note", ("ada",), {"number": 5})
    assert found.state == ExecutionState.SCHEDULED
    assert abs(found.when - when) < timedelta(milliseconds=2)

    await knowing.cancel("later")
    await run_everything(knowing)
    assert seen == [((1,), {"two": 2})]
    assert await left(knowing) == []
    assert (await knowing.ledger.foreign.count()).total == 0


async def test_a_second_import_finds_nothing(knowing: Docket) -> None:
    for number in range(5):
        await leave_queued(knowing, f"ready-{number}", "note", number)
        await leave_scheduled(knowing, f"later-{number}", "note", number, when=now() + timedelta(milliseconds=1))
    first, second = await asyncio.gather(
        knowing.ledger.foreign.take_over(knowing.payloads), knowing.ledger.foreign.take_over(knowing.payloads)
    )
    third = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert (first.scheduled + second.scheduled, first.queued + second.queued) == (5, 5)
    assert third == Imported()
    assert sorted(args[0] for args, _ in seen) == sorted([*range(5), *range(5)])


async def test_an_import_that_is_cut_off_goes_on_where_it_was(knowing: Docket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer to a page is lost after the server has moved it."""
    monkeypatch.setattr("docket.ledger.foreign._PAGE", 2)
    for number in range(6):
        await leave_queued(knowing, f"ready-{number}", "note", number)
    ask, calls = knowing.ledger.run_script, []

    async def cut_off(script: str, arguments: Any) -> Any:
        reply = await ask(script, arguments)
        calls.append(script)
        if calls.count("import_tasks") == 2:
            raise ConnectionError("cut off")
        return reply

    monkeypatch.setattr(knowing.ledger, "run_script", cut_off)
    with pytest.raises(ConnectionError):
        await knowing.ledger.foreign.take_over(knowing.payloads)
    monkeypatch.undo()
    rest = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert rest.queued == 2
    assert sorted(args[0] for args, _ in seen) == list(range(6))


async def test_a_task_that_a_lost_worker_of_pydocket_had_taken_is_taken_over(knowing: Docket) -> None:
    await leave_taken(knowing, "taken", "note", 1)
    imported = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert imported.queued == 1
    assert seen == [((1,), {})]


async def test_a_key_that_docket_has_a_task_for_keeps_it(knowing: Docket) -> None:
    await knowing.add(note, key="same")("ours")
    await leave_queued(knowing, "same", "note", "theirs")
    imported = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert imported == Imported(already_there=["same"])
    assert seen == [(("ours",), {})]


@pytest.mark.parametrize("leave", [leave_queued, leave_taken])
async def test_a_task_whose_key_docket_has_is_kept_and_taken_over_later(knowing: Docket, leave: Any) -> None:
    await leave(knowing, "same", "note", "theirs")
    await knowing.add(note, key="same")("ours")
    first = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)
    second = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert first == Imported(already_there=["same"])
    assert second == Imported(queued=1)
    assert seen == [(("ours",), {}), (("theirs",), {})]
    assert await left(knowing) == []


async def test_a_scheduled_task_whose_key_docket_has_is_kept_and_taken_over_later(knowing: Docket) -> None:
    await leave_scheduled(knowing, "same", "note", "theirs", when=now() - timedelta(seconds=1))
    await knowing.add(note, key="same")("ours")
    first = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)
    ran = list(seen)
    second = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert first == Imported(already_there=["same"])
    assert ran == [(("ours",), {})]
    assert second == Imported(scheduled=1)
    assert seen == [(("ours",), {}), (("theirs",), {})]
    assert await left(knowing) == []


async def test_a_key_that_pydocket_has_scheduled_can_be_scheduled_by_docket_too(knowing: Docket) -> None:
    """Each has its own time, and neither is moved by the other's."""
    theirs = now() + LATER
    await leave_scheduled(knowing, "same", "note", "theirs", when=theirs)
    await knowing.add(note, when=now() + timedelta(seconds=0.2), key="same")("ours")
    async with knowing.redis() as redis:
        score = await redis.zscore(f"{knowing.name}:queue", "same")
    await run_everything(knowing)
    ran = list(seen)
    imported = await knowing.ledger.foreign.take_over(knowing.payloads)
    execution = await knowing.get_execution("same")

    assert score == theirs.timestamp()
    assert ran == [(("ours",), {})]
    assert imported == Imported(scheduled=1)
    assert execution is not None
    assert execution.args == ("theirs",)
    assert abs(execution.when - theirs) < timedelta(milliseconds=2)


async def test_a_task_is_not_enqueued_again_when_pydocket_s_of_its_key_falls_due(knowing: Docket) -> None:
    await leave_scheduled(knowing, "same", "note", "theirs", when=now() - timedelta(seconds=1))
    await knowing.add(note, key="same")("ours")
    await knowing.ledger.tasks.stage()
    async with knowing.redis() as redis:
        assert await redis.xlen(knowing.stream_key) == 1
    await run_everything(knowing)

    assert seen == [(("ours",), {})]
    assert (await knowing.ledger.foreign.count()).scheduled == 1


def test_the_summary_names_the_keys_that_docket_has_tasks_for(capsys: pytest.CaptureFixture[str]) -> None:
    show("shop", Imported(already_there=[f"k{number}" for number in range(12)]))
    told = capsys.readouterr().out

    assert "Not imported: 12 whose keys" in told
    assert "'k0', 'k1'" in told
    assert "'k10'" not in told


async def test_large_arguments_are_taken_over(knowing: Docket) -> None:
    await leave_queued(knowing, "large", "note", "x" * 50_000)
    await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)

    assert len(seen[0][0][0]) == 50_000


async def test_arguments_of_unknown_classes_are_moved_and_fail_in_their_own_task(knowing: Docket) -> None:
    await leave_queued(knowing, "strange", "note", 1)
    async with knowing.redis() as redis:
        entries: Any = await redis.xrange(f"{knowing.name}:stream")
        ((id, fields),) = entries
        await redis.xdel(f"{knowing.name}:stream", id)
        await redis.xadd(f"{knowing.name}:stream", fields | {b"args": b"\x80\x05cnowhere\nThing\n."})
    await leave_queued(knowing, "fine", "note", 2)
    imported = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)
    strange = await knowing.get_execution("strange")

    assert imported.queued == 2
    assert seen == [((2,), {})]
    assert strange is not None
    assert strange.state == ExecutionState.FAILED


async def test_what_cannot_be_read_is_counted_and_left(knowing: Docket) -> None:
    async with knowing.redis() as redis:
        await redis.xadd(f"{knowing.name}:stream", {"something": "else"})
        await redis.zadd(f"{knowing.name}:queue", {"nothing": now().timestamp()})
    await leave_queued(knowing, "fine", "note")
    imported = await knowing.ledger.foreign.take_over(knowing.payloads)

    assert imported.queued == 1
    assert len(imported.unreadable) == 2
    assert (await knowing.ledger.foreign.count()).total > 0


async def test_a_worker_that_meets_them_sets_them_aside_until_they_are_imported(knowing: Docket) -> None:
    await leave_scheduled(knowing, "later", "note", "later", when=now() - timedelta(seconds=1))
    await leave_queued(knowing, "ready", "note", "ready")
    await leave_taken(knowing, "taken", "note", "taken")
    await knowing.add(note)("ours")

    async def are_aside() -> bool:
        return (await knowing.ledger.foreign.count()).set_aside == 2

    async with worker_for(knowing) as worker, running(worker):
        await eventually(are_aside, "the old tasks are set aside")
    assert seen == [(("ours",), {})]

    imported = await knowing.ledger.foreign.take_over(knowing.payloads)
    await run_everything(knowing)
    assert (imported.scheduled, imported.queued) == (1, 2)
    assert sorted(args[0] for args, _ in seen) == ["later", "ours", "ready", "taken"]
    assert await left(knowing) == []


async def test_no_key_of_a_user_makes_import_delete_docket_s_own(knowing: Docket) -> None:
    for key in ("stream", "queue", "scheduled", "tasks", "epoch", "running"):
        await leave_queued(knowing, key, "note", key)
    await knowing.add(note, when=now() + LATER, key="ours")()
    await knowing.ledger.foreign.take_over(knowing.payloads)

    assert {execution.key for execution in (await knowing.snapshot()).future} >= {"ours"}
    await knowing.cancel("ours")
    await run_everything(knowing)
    assert sorted(args[0] for args, _ in seen) == ["epoch", "queue", "running", "scheduled", "stream", "tasks"]


async def test_the_command_line_takes_tasks_over(tmp_path: Path) -> None:
    url = f"embedded://{tmp_path}"
    async with Docket(name="shop", url=url) as docket:
        await leave_queued(docket, "ready", "note", 1)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "docket", "import", "--docket", "shop", "--url", url, "--json",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate()
        found = await docket.get_execution("ready")

    assert process.returncode == 0, err.decode()
    assert json.loads(out)["queued"] == 1
    assert err == b""
    assert found is not None
    assert found.state == ExecutionState.QUEUED
