"""Tasks that failed for good are kept, found, retried, edited and discarded."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

import pytest

from docket import (
    Cron,
    Docket,
    EmptyFilter,
    ExecutionState,
    Keep,
    KeepFailures,
    Keyring,
    LetterChanged,
    LetterNotFound,
    Logged,
    Perpetual,
    Retry,
    TaskNotRegistered,
    Worker,
)
from docket import sync as sync_docket
from docket.dead import Letter, Report
from docket.dependencies import Cooldown
from docket.ledger.letters import LetterRow
from docket.settings import change_settings
from docket.storage.client.faults import ServerGone
from tests.nodes import keys_like
from tests.times import later

WRONG = {"it": True}


class Bounced(Exception):
    pass


async def send(customer: Annotated[int, Logged], text: str = "hello", /, *, copy: bool = False) -> None:
    if customer != 8:
        raise Bounced(f"no mailbox of {customer}")


async def divide(by: int = 0) -> float:
    return 1 / by


@pytest.fixture
def registered(docket: Docket) -> Docket:
    docket.register(send)
    docket.register(divide)
    return docket


async def letters(docket: Docket, **filter: Any) -> list[Letter]:
    return [letter async for letter in docket.dead.find(**filter)]


async def fail_some(docket: Docket, worker: Worker) -> None:
    await docket.add(send, key="a")(7)
    await docket.add(send, key="b")(9)
    await docket.add(divide, key="c")()
    await worker.run_until_finished()


async def test_a_failed_task_is_kept_whole(registered: Docket, worker: Worker) -> None:
    await registered.add(divide, key="sum")(0)
    await worker.run_until_finished()
    letter = await registered.dead.get("sum")
    assert letter is not None
    assert (letter.key, letter.function, letter.reason) == ("sum", "divide", "failed")
    assert (letter.error, letter.text) == ("ZeroDivisionError", "ZeroDivisionError: division by zero")
    assert letter.traceback is not None
    assert "return 1 / by" in letter.traceback
    assert letter.place.endswith("test_dead_letters.divide")
    assert (letter.attempts, letter.losses, letter.deaths, letter.worker) == (1, 0, 1, worker.name)
    assert letter.docket_version
    assert letter.python_version
    assert letter.duration is not None
    assert letter.ends_at - letter.died_at == timedelta(days=7)
    assert letter.execution is not None
    assert (letter.execution.args, letter.execution.kwargs) == ((0,), {})
    assert await registered.dead.get(letter.id) == letter
    assert await registered.dead.get("other") is None


async def test_only_the_last_attempt_becomes_a_letter(docket: Docket, worker: Worker) -> None:
    async def flaky(retry: Retry = Retry(attempts=3)) -> None:
        raise ValueError("again")

    docket.register(flaky)
    await docket.add(flaky, key="k")()
    await worker.run_until_finished()
    (letter,) = await letters(docket)
    assert letter.attempts == 3


async def test_a_chain_that_goes_on_and_a_cancelled_task_have_no_letter(docket: Docket, worker: Worker) -> None:
    async def chain(perpetual: Perpetual = Perpetual(every=timedelta(milliseconds=1))) -> None:
        raise ValueError("this time")

    async def cancelled() -> None:
        raise asyncio.CancelledError

    docket.register(chain)
    docket.register(cancelled)
    await docket.add(chain, key="chain")()
    await docket.add(cancelled, key="cancelled")()
    await worker.run_at_most({"chain": 3, "cancelled": 1})
    assert await letters(docket) == []


async def test_letters_are_grouped_by_kind(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    overview = await registered.dead.overview()
    assert overview.letters == 3
    assert [(kind.function, kind.error.rpartition(".")[2], kind.count) for kind in overview.kinds] == [
        ("send", "Bounced", 2),
        ("divide", "ZeroDivisionError", 1),
    ]
    (kind,) = await registered.dead.kinds(function=send)
    assert [letter.key for letter in await letters(registered, kind=kind)] == ["b", "a"]


async def test_letters_are_found_by_filters(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    dead = registered.dead

    async def keys(**filter: Any) -> list[str]:
        found = [letter.key for letter in await letters(registered, **filter)]
        assert await dead.count(**filter) == len(found)
        return found

    assert await keys() == ["c", "b", "a"]
    assert await keys(function=send) == ["b", "a"]
    assert await keys(function="divide") == ["c"]
    assert await keys(error=Bounced) == ["b", "a"]
    assert await keys(error="Bounced", text="of 9") == ["b"]
    assert await keys(text="raise Bounced") == ["b", "a"], "the traceback is searched"
    assert await keys(argument=("customer", 7)) == ["a"]
    assert await keys(argument=("customer", 7.0)) == ["a"]
    assert await keys(argument=("customer", "7")) == []
    assert await keys(key="b") == ["b"]
    assert await keys(key_prefix="b") == ["b"]
    assert await keys(since=registered.now() - timedelta(hours=1)) == ["c", "b", "a"]
    assert await keys(until=registered.now() - timedelta(hours=1)) == []
    (first,) = await letters(registered, key="a")
    assert await keys(id=first.id) == ["a"]
    assert len(await letters(registered, limit=2)) == 2


@pytest.mark.parametrize(
    ("filter", "error", "words"),
    [
        ({"funktion": "send"}, TypeError, "no filter 'funktion'; there are function, error"),
        ({"argument": 7}, TypeError, "takes a pair"),
        ({"since": "yesterday"}, TypeError, "takes a datetime"),
        ({"text": ""}, ValueError, "leave it out"),
        ({"error": 7}, TypeError, "an exception class or its name"),
        ({"id": True}, TypeError, "takes a int"),
        ({}, EmptyFilter, "everything=True"),
        ({"key": "a", "everything": True}, ValueError, "takes no filter"),
        ({"key": "a", "most": 0}, ValueError, "at least 1"),
        ({"id": 1, "error": "LookupError"}, ValueError, "names one letter, so error cannot"),
    ],
)
async def test_a_filter_that_makes_no_sense_is_one_clear_error(
    registered: Docket, worker: Worker, filter: dict[str, Any], error: type[Exception], words: str
) -> None:
    await fail_some(registered, worker)
    for change in (registered.dead.retry, registered.dead.discard):
        with pytest.raises(error, match=words):
            await change(**filter)
    assert await registered.dead.count() == 3


async def test_a_retried_letter_runs_again(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    report = await registered.dead.retry(function=send)
    assert (report.matched, report.retried, report.skipped, report.left) == (2, 2, {}, 0)
    assert await registered.dead.count() == 1
    await worker.run_until_finished()
    again = await letters(registered, function=send)
    assert {(letter.key, letter.deaths, letter.attempts) for letter in again} == {("a", 2, 1), ("b", 2, 1)}


async def test_an_edited_letter_runs_with_its_new_arguments(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    edited = await registered.dead.edit("a", customer=8, copy=True)
    assert edited.execution is not None
    assert (edited.execution.args, edited.execution.kwargs, edited.edits) == ((8,), {"copy": True}, 1)
    assert await registered.dead.count(argument=("customer", 8)) == 1
    await registered.dead.retry(key="a")
    await worker.run_until_finished()
    execution = await registered.get_execution("a")
    assert execution is not None
    assert execution.state is ExecutionState.COMPLETED
    assert sorted(letter.key for letter in await letters(registered)) == ["b", "c"]


async def test_an_edit_that_does_not_fit_changes_nothing(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    before = await registered.dead.get("a")
    with pytest.raises(TypeError, match=r"send\(\) has no parameter 'costumer'; it has customer, text, copy"):
        await registered.dead.edit("a", costumer=8)
    with pytest.raises(TypeError, match="at least one"):
        await registered.dead.edit("a")
    with pytest.raises(LetterNotFound, match="'nobody'"):
        await registered.dead.edit("nobody", customer=8)
    assert await registered.dead.get("a") == before
    async with Docket(registered.name, registered.url) as observer:
        with pytest.raises(TaskNotRegistered, match="'send' is not registered here"):
            await observer.dead.edit("a", customer=8)


async def test_two_edits_at_once_do_not_overwrite_each_other(
    registered: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fail_some(registered, worker)
    opened = registered.payloads.open_call
    rows: list[LetterRow] = []

    def open_slowly(*args: Any) -> Any:
        rows.append(LetterRow(0))
        return opened(*args)

    monkeypatch.setattr(registered.payloads, "open_call", open_slowly)
    results = await asyncio.gather(*(registered.dead.edit("a", customer=n) for n in range(3)), return_exceptions=True)
    kept = [result for result in results if isinstance(result, Letter)]
    assert len(rows) == 3
    assert {type(result) for result in results} <= {Letter, LetterChanged}
    letter = await registered.dead.get("a")
    assert letter is not None
    assert letter.edits == len(kept)


async def test_large_arguments_move_with_their_letter(registered: Docket, worker: Worker) -> None:
    await registered.add(send, key="large")(7, "x" * 10_000)
    await worker.run_until_finished()
    (found,) = await letters(registered)
    assert found.size > 10_000
    edited = await registered.dead.edit("large", text="y" * 20_000)
    assert edited.execution is not None
    assert edited.execution.args == (7, "y" * 20_000)
    await registered.dead.retry(everything=True)
    await worker.run_until_finished()
    letter = await registered.dead.get("large")
    assert letter is not None
    assert letter.execution is not None
    assert letter.execution.args == (7, "y" * 20_000)
    assert letter.deaths == 2
    await registered.dead.discard(everything=True)
    assert await keys_like(registered, f"{registered.keys.prefix}:payload*") == []


async def test_a_key_that_is_taken_is_skipped_and_said_so(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    await registered.add(send, when=later(), key="a")(8)
    report = await registered.dead.retry(everything=True)
    assert (report.matched, report.retried, report.skipped) == (3, 2, {"its key has an unfinished task": 1})
    (left,) = await letters(registered)
    assert (left.key, report.skipped_ids) == ("a", [left.id])


async def test_a_batch_can_be_spread_and_bounded(registered: Docket, worker: Worker) -> None:
    for n in range(10):
        await registered.add(divide, key=f"k{n}")()
    await worker.run_until_finished()
    began = registered.now()
    report = await registered.dead.retry(everything=True, over=timedelta(minutes=10), most=5)
    assert (report.retried, report.left) == (5, 5)
    snapshot = await registered.snapshot()
    waiting = sorted([*snapshot.future, *snapshot.running], key=lambda execution: execution.when)
    assert [execution.key for execution in waiting] == [f"k{n}" for n in range(5)]
    offsets = [(execution.when - began).total_seconds() for execution in waiting]
    steps = [later - earlier for earlier, later in itertools.pairwise(offsets)]
    assert all(119 < step < 121 for step in steps)


async def test_a_batch_outlives_one_lost_answer_of_every_kind(
    registered: Docket, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await registered.add(send, key=f"k{number}")(number)
    await worker.run_until_finished()
    ledger, lost = type(registered.ledger), set[str]()
    ask = ledger.run_script

    async def loses_first_answer(self: Any, script: str, *arguments: Any, **options: Any) -> Any:
        answer = await ask(self, script, *arguments, **options)
        if script not in lost:
            lost.add(script)
            raise ServerGone("the answer was lost")
        return answer

    monkeypatch.setattr(ledger, "run_script", loses_first_answer)
    report = await registered.dead.retry(everything=True)
    assert {"count_letters", "list_letters", "retry_letters"} <= lost
    assert (report.matched, report.retried, report.gone) == (3, 3, 0)


async def test_a_batch_works_up_to_its_mark(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)
    mark = await registered.dead.mark()
    await registered.add(divide, key="later")()
    await worker.run_until_finished()
    report = await registered.dead.discard(everything=True, mark=mark)
    assert (report.discarded, report.mark) == (3, mark)
    assert [letter.key for letter in await letters(registered)] == ["later"]


async def test_progress_of_a_batch_is_told(registered: Docket, worker: Worker) -> None:
    for n in range(250):
        await registered.add(divide, key=f"k{n}")()
    await worker.run_until_finished()
    told: list[tuple[int, int]] = []
    report = await registered.dead.discard(everything=True, progress=lambda done, all: told.append((done, all)))
    assert report.discarded == 250
    assert told == [(n, 250) for n in range(50, 251, 50)]


# Settings


@pytest.fixture
async def other(name: str, url: str) -> AsyncIterator[Any]:
    """Opens dockets with other settings on the same data."""
    opened: list[Docket] = []

    async def open(**settings: Any) -> Docket:
        docket = Docket(name, url, **settings)
        await docket.__aenter__()
        opened.append(docket)
        docket.register(divide)
        return docket

    yield open
    for docket in opened:
        await docket.__aexit__(None, None, None)


@pytest.mark.parametrize(
    "settings", [{"keep_failures": 0}, {"keep_failures": timedelta(0)}, {"execution_ttl": timedelta(0)}]
)
async def test_letters_may_be_off(other: Any, settings: dict[str, Any]) -> None:
    docket: Docket = await other(**settings)
    await docket.add(divide)()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    assert await docket.dead.count() == 0


async def test_letters_go_off_with_the_records_of_finished_tasks() -> None:
    docket = Docket("settings", "memory://settings")
    assert not docket.keep_failures.is_off
    change_settings(docket, execution_ttl=timedelta(0))
    assert docket.keep_failures.is_off
    change_settings(docket, keep_failures=timedelta(days=1))
    assert docket.keep_failures == Keep(timedelta(days=1))


async def test_letters_may_be_kept_without_finished_records(other: Any) -> None:
    docket: Docket = await other(execution_ttl=timedelta(0), keep_failures=timedelta(hours=1))
    await docket.add(divide, key="k")()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    (letter,) = await letters(docket)
    assert letter.traceback is not None
    assert letter.ends_at - letter.died_at == timedelta(hours=1)


async def test_a_function_may_set_how_long_its_letters_are_kept(docket: Docket, worker: Worker) -> None:
    async def never(keep: KeepFailures = KeepFailures(0)) -> None:
        raise ValueError

    async def long(keep: KeepFailures = KeepFailures(timedelta(days=90))) -> None:
        raise ValueError

    for function in (never, long):
        docket.register(function)
        await docket.add(function)()
    await worker.run_until_finished()
    (letter,) = await letters(docket)
    assert letter.function == "long"
    assert letter.ends_at - letter.died_at == timedelta(days=90)


async def test_more_letters_than_allowed_are_dropped_counted_and_warned_of(
    other: Any, caplog: pytest.LogCaptureFixture
) -> None:
    docket: Docket = await other(keep_failures=Keep(letters=2))
    for n in range(5):
        await docket.add(divide, key=f"k{n}")()
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    overview = await docket.dead.overview()
    assert (overview.letters, overview.dropped) == (2, 3)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Keep(letters=-1), ValueError, "letters"),
        (lambda: Keep(size=1.5), TypeError, "size"),  # type: ignore[arg-type]
        (lambda: Keep(age=7), TypeError, "timedelta"),  # type: ignore[arg-type]
        (lambda: Docket(keep_failures=7), TypeError, "neither a Keep nor a timedelta"),
        (lambda: Docket(keep_failures=timedelta(-1)), ValueError, "cannot be negative"),
        (lambda: KeepFailures(7), TypeError, "KeepFailures"),
        (lambda: KeepFailures(timedelta(-1)), ValueError, "negative"),
    ],
)
def test_settings_that_are_not_valid_are_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


# Tasks that could not run


async def test_a_task_that_cannot_be_read_is_a_letter(registered: Docket, worker: Worker) -> None:
    await registered.add(send, key="k")(8)
    async with registered.redis() as redis:
        record: Any = await redis.hget(registered.keys.tasks, "k")
        await redis.hset(registered.keys.tasks, "k", record[:-6] + b"x" * 6)
    await worker.run_until_finished()
    letter = await registered.dead.get("k")
    assert letter is not None
    assert (letter.reason, letter.function) == ("undecodable", "send")


async def test_a_retried_task_that_is_struck_or_dropped_is_a_letter_again(docket: Docket, worker: Worker) -> None:
    async def limited(cooldown: Cooldown = Cooldown(timedelta(hours=1))) -> None:
        raise ValueError

    async def struck() -> None:
        raise ValueError

    docket.register(limited)
    docket.register(struck)
    await docket.add(limited, key="first")()
    await docket.add(struck, key="struck")()
    await worker.run_until_finished()
    async with docket.redis() as redis:
        for key in await keys_like(docket, f"{docket.keys.prefix}:cooldown*"):
            await redis.delete(key)
    await docket.add(limited, key="second")()
    await worker.run_until_finished()
    assert sorted(letter.key for letter in await letters(docket)) == ["first", "second", "struck"]
    await docket.strike(struck)
    report = await docket.dead.retry(everything=True)
    assert report.retried == 3
    await worker.run_until_finished()
    again = {letter.key: letter for letter in await letters(docket)}
    assert sorted(again) == ["first", "second", "struck"]
    assert {letter.reason for letter in again.values()} == {"not run"}
    assert {letter.deaths for letter in again.values()} == {1}


async def test_an_encrypted_docket_shows_no_text_and_searches_none(other: Any) -> None:
    docket: Docket = await other(signing=Keyring({"k": b"s" * 32}), encrypt=True)
    docket.register(send)
    await docket.add(send, key="k")(7)
    async with Worker(docket) as worker:
        await worker.run_until_finished()
    letter = await docket.dead.get("k")
    assert letter is not None
    assert "mailbox" not in letter.text
    assert letter.traceback is not None
    assert "no mailbox of 7" in letter.traceback, "this process has the key"
    async with docket.redis() as redis:
        stored: Any = await redis.hgetall(docket.keys.letter_records)
    (record,) = stored.values()
    assert b"mailbox" not in record
    assert b"customer" not in record
    with pytest.raises(ValueError, match="encrypts"):
        await docket.dead.count(text="mailbox")


# Automatic tasks


async def test_a_buried_automatic_task_says_so_until_it_is_retried(
    docket: Docket, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    async def nightly(cron: Cron = Cron("0 3 * * *")) -> None: ...

    docket.register(nightly)
    await docket.add(nightly, key="nightly")()
    async with docket.redis() as redis:
        await redis.sadd(docket.keys.key("automatic"), "nightly")
        record: Any = await redis.hget(docket.keys.tasks, "nightly")
        await redis.hset(docket.keys.tasks, "nightly", record[:-4] + b"xxxx")
    await worker.run_at_most({"nightly": 1})
    async with docket.redis() as redis:
        await redis.delete(docket.keys.run("nightly"))
    execution = await docket.get_execution("nightly")
    assert execution is not None
    assert execution.state is ExecutionState.FAILED
    assert execution.error
    (buried,) = (await docket.dead.overview()).buried
    assert buried.name == "nightly"
    assert "docket dead retry" in (await docket.why("nightly")).sentence
    (letter,) = await letters(docket, key="nightly")
    assert buried.letter == letter.id
    report = await docket.dead.discard(key="nightly")
    assert report.discarded == 1


async def test_a_buried_automatic_task_without_a_letter_is_retried_by_its_name(docket: Docket) -> None:
    async with docket.redis() as redis:
        await redis.hset(docket.keys.buried_chains, "nightly", "1700000000000 - WorkerLost: it was lost")
        await redis.hset(docket.keys.key("cancelled-chains"), "nightly", "1700000000000")
    execution = await docket.get_execution("nightly")
    assert execution is not None
    assert (execution.state, execution.error) == (ExecutionState.FAILED, "WorkerLost: it was lost")
    report = await docket.dead.retry(key="nightly")
    assert (report.matched, report.chains) == (0, 1)
    assert await docket.get_execution("nightly") is None
    async with docket.redis() as redis:
        assert not await redis.hexists(docket.keys.key("cancelled-chains"), "nightly")


async def test_letters_of_a_manual_run(registered: Docket) -> None:
    execution = await registered.add(divide, key="manual")(1)
    assert await execution.claim("somebody")
    await execution.mark_as_failed("it went wrong")
    (letter,) = await letters(registered)
    assert (letter.key, letter.text, letter.worker) == ("manual", "it went wrong", "somebody")


# Without an event loop


async def test_a_sync_docket_has_the_same_letters(registered: Docket, worker: Worker) -> None:
    await fail_some(registered, worker)

    def look() -> list[Any]:
        with sync_docket.Docket(registered.name, registered.url) as docket:
            docket.register(send)
            docket.dead.edit("a", customer=8)
            report: Report = docket.dead.retry(function=send)
            found = docket.dead.find(function=divide)
            return [report.retried, [letter.key for letter in found], docket.dead.count(), docket.dead.mark() > 0,
                    docket.dead.discard(everything=True).discarded, docket.dead.get("a"), docket.dead.overview().letters,
                    docket.dead.kinds()]  # fmt: skip

    assert await asyncio.to_thread(look) == [2, ["c"], 1, True, 1, None, 0, []]


async def test_letters_are_trimmed_by_the_leader(registered: Docket, worker: Worker, caplog: Any) -> None:
    await fail_some(registered, worker)
    async with registered.redis() as redis:
        await redis.zadd(registered.keys.key("letter-ends"), {b"%016d" % (await registered.dead.mark()): 1})
    client = registered.server.threaded_client(lambda: 90.0, registered.keys.stream)
    try:
        trimmed = await asyncio.to_thread(registered.ledger.letters.trim, client)
    finally:
        client.close()
    assert (trimmed.ended, trimmed.dropped, trimmed.letters) == (1, 0, 2)
    assert logging.WARNING not in [record.levelno for record in caplog.records]
