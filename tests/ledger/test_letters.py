"""Dead letters: tasks that failed for good are kept whole, found again, retried, edited and
discarded."""

from __future__ import annotations

from typing import Any
from unittest.mock import ANY

import pytest

from docket.ledger import Delivery, SettleResult
from docket.ledger.endings import Ending
from docket.ledger.letters import (
    BuriedChain,
    DeathCause,
    Edited,
    LetterNote,
    LetterQuery,
    Retried,
    fingerprint_line,
    fingerprint_lines,
)
from docket.ledger.payloads import call_payload
from docket.ledger.settlements import Settlement, as_chain_end, finish, reschedule, with_ending
from docket.ledger.values import Seed
from docket.model.retention import Keep
from docket.model.states import ExecutionState
from docket.storage.letters import read_letter
from docket.storage.schema.records import CANCELLED_TAIL, FINISHED_HEADER, REVIVED

from .ledger_client import LETTER_MS, TTL_MS, LedgerClient, completed, ended, new_task

FAILED = ExecutionState.FAILED


def failed(run: Delivery, **note: Any) -> Settlement:
    fields = {
        "reason": DeathCause.FAILED,
        "age_ms": LETTER_MS,
        "error": "app.Oops",
        "place": "app.run",
        "text": "Oops: no",
        **note,
    }
    letter = LetterNote(**fields)
    return finish(run.key, run.epoch, FAILED, TTL_MS, Ending("w", "Oops: no").pack(), "{}", letter=letter)


async def fail(ledger_client: LedgerClient, *keys: str, **note: Any) -> list[int]:
    """Tasks of these keys have failed for good. Returns the ids of their letters."""
    before = set(ledger_client.stored_state().letters)
    worker = await ledger_client.hire()
    await ledger_client.add(*keys)
    runs = await ledger_client.take(worker, 1000)
    assert await ledger_client.settle(*(failed(run, **note) for run in runs)) == [SettleResult.DONE] * len(keys)
    await ledger_client.ledger.fleet.leave(worker)
    return sorted(set(ledger_client.checked_state().letters) - before)


async def find(ledger_client: LedgerClient, *, newest_first: bool = False, size: int = 500, **query: Any) -> list[int]:
    pages = ledger_client.ledger.letters.pages(
        LetterQuery(**query),
        newest_first=newest_first,
        whole=False,
        size=size,
    )
    return [row.id async for page in pages for row in page]


# Keeping


async def test_a_task_that_failed_is_kept_whole(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k", traceback=b"Traceback: ...", arguments=fingerprint_lines({"customer": "x"}))
    letter = ledger_client.checked_state().letters[id]
    assert (letter.key, letter.error, letter.place, letter.text) == ("k", "app.Oops", "app.run", "Oops: no")
    assert (letter.deaths, letter.edits, letter.reason, letter.traceback) == (
        1,
        0,
        DeathCause.FAILED,
        b"Traceback: ...",
    )
    assert letter.task.function_name == "f"
    assert letter.task.attempt == 1
    assert letter.ends_ms == letter.died_ms + LETTER_MS
    counts = await ledger_client.ledger.letters.count()
    assert (counts.letters, counts.last_id, counts.dropped) == (1, id, 0)
    (kind,) = counts.kinds
    assert (kind.function, kind.error, kind.place, kind.count) == ("f", "app.Oops", "app.run", 1)


async def test_a_repeated_settlement_writes_one_letter(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.settle(failed(run)) == [SettleResult.DONE]
    assert await ledger_client.settle(failed(run)) == [SettleResult.LOST]
    assert len(ledger_client.checked_state().letters) == 1


async def test_a_key_is_never_blocked_by_its_letters(ledger_client: LedgerClient) -> None:
    first = await fail(ledger_client, "k")
    second = await fail(ledger_client, "k")
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "k")
    assert await ledger_client.settle(completed(run)) == [SettleResult.DONE]
    assert sorted(ledger_client.checked_state().letters) == first + second
    row = await ledger_client.ledger.letters.get("k")
    assert row is not None
    assert row.id == second[0]


async def test_letters_of_keys_that_begin_alike_are_told_apart(ledger_client: LedgerClient) -> None:
    keys = ["k", "k\x009999999999999999", "k\x00", "k\x00\x00", "k\x01", "ka", "K"]
    ids = dict(zip(keys, await fail(ledger_client, *keys), strict=True))
    for key, id in ids.items():
        row = await ledger_client.ledger.letters.get(key)
        assert row is not None
        assert (row.id, read_letter(row.data).key) == (id, key)
        assert await find(ledger_client, key=key) == [id]
    assert await ledger_client.ledger.letters.get("other") is None
    assert await find(ledger_client, key_prefix="k") == sorted(set(ids.values()) - {ids["K"]})


async def test_a_letter_that_also_ends_a_chain_does_both(ledger_client: LedgerClient) -> None:
    await ledger_client.ledger.tasks.seedable("deploy", ["chain"])
    worker = await ledger_client.hire()
    run = await ledger_client.start(worker, "chain")
    await ledger_client.settle(as_chain_end(failed(run)))
    assert ledger_client.checked_state().dead == {"chain"}
    assert await ledger_client.ledger.tasks.seedable("deploy", ["chain"]) == [Seed.CANCELLED]


# The limits


@pytest.mark.parametrize("most", [1, 3])
async def test_there_are_never_more_letters_than_allowed(ledger_client: LedgerClient, most: int) -> None:
    ids = [id for n in range(6) for id in await fail(ledger_client, f"k{n}", most=most)][-most:]
    assert sorted(ledger_client.checked_state().letters) == ids
    counts = await ledger_client.ledger.letters.count()
    assert (counts.letters, counts.dropped) == (most, 6 - most)
    assert counts.kinds[0].count == most


async def test_a_batch_of_failures_keeps_the_limit(ledger_client: LedgerClient) -> None:
    ids = await fail(ledger_client, *(f"k{n}" for n in range(50)), most=7)
    assert len(ids) == 7
    assert {letter.key for letter in ledger_client.checked_state().letters.values()} == {f"k{n}" for n in range(43, 50)}
    assert (await ledger_client.ledger.letters.count()).dropped == 43


async def test_the_bytes_of_letters_are_never_more_than_allowed(ledger_client: LedgerClient) -> None:
    (first,) = await fail(ledger_client, "a")
    size = ledger_client.checked_state().letters[first].size
    for n in range(5):
        await fail(ledger_client, f"b{n}", most_bytes=3 * size + 10)
        assert sum(letter.size for letter in ledger_client.checked_state().letters.values()) <= 3 * size + 10
    assert len(ledger_client.checked_state().letters) == 3
    assert (await ledger_client.ledger.letters.count()).dropped == 3


async def test_a_letter_that_is_larger_than_all_letters_may_be_is_dropped_and_counted(
    ledger_client: LedgerClient,
) -> None:
    kept = await fail(ledger_client, "a")
    assert await fail(ledger_client, "b", most_bytes=50) == []
    assert sorted(ledger_client.checked_state().letters) == kept
    assert (await ledger_client.ledger.letters.count()).dropped == 1


async def test_one_large_letter_does_not_make_the_script_drop_thousands(ledger_client: LedgerClient) -> None:
    await fail(ledger_client, *(f"k{n}" for n in range(300)))
    size = (await ledger_client.ledger.letters.count()).bytes
    assert await fail(ledger_client, "large", most_bytes=size, traceback=b"x" * (size - 1000)) == []
    counts = await ledger_client.ledger.letters.count()
    assert (counts.letters, counts.dropped) == (300, 1), "the others did not have to go"


async def test_letters_end_when_their_time_is_over(ledger_client: LedgerClient) -> None:
    kept = await fail(ledger_client, "stays")
    await fail(ledger_client, *(f"k{n}" for n in range(250)), age_ms=1)
    ledger_client.client.zadd(ledger_client.ledger.keys.key("letter-ends"), {b"%016d" % kept[0]: 1}, gt=True)
    trimmed = ledger_client.ledger.letters.trim(ledger_client.client)
    assert (trimmed.ended, trimmed.has_more) == (200, True)
    trimmed = ledger_client.ledger.letters.trim(ledger_client.client)
    assert (trimmed.ended, trimmed.has_more, trimmed.letters) == (50, False, 1)
    assert sorted(ledger_client.checked_state().letters) == kept
    assert (await ledger_client.ledger.letters.count()).dropped == 0


async def test_dropped_letters_are_reported_once(ledger_client: LedgerClient) -> None:
    await fail(ledger_client, "a", "b", "c", most=1)
    assert ledger_client.ledger.letters.trim(ledger_client.client).dropped == 2
    assert ledger_client.ledger.letters.trim(ledger_client.client).dropped == 0
    ledger_client.ledger.keep = Keep(letters=1, size=10)
    assert ledger_client.ledger.letters.trim(ledger_client.client).dropped == 1
    assert not ledger_client.checked_state().letters


async def test_a_function_with_very_many_errors_has_coarser_kinds(ledger_client: LedgerClient) -> None:
    worker = await ledger_client.hire()
    for start in range(0, 400, 200):
        keys = [f"k{n}" for n in range(start, start + 200)]
        await ledger_client.add(*keys)
        runs = await ledger_client.take(worker, 1000)
        await ledger_client.settle(
            *(failed(run, error=f"app.E{n}", place=f"p{n}") for n, run in enumerate(runs, start))
        )
    state = ledger_client.checked_state()
    assert len(state.letters) == 400
    kinds = (await ledger_client.ledger.letters.count()).kinds
    assert len(kinds) == 151
    assert [(kind.function, kind.error, kind.place) for kind in kinds[:1]] == [("f", "", "")]
    last = max(state.letters)
    assert await find(ledger_client, error="E399") == [last], "the letter itself has its class"
    await ledger_client.ledger.letters.discard("batch", 1, sorted(state.letters))
    assert ledger_client.client.hkeys(ledger_client.ledger.keys.key("letter-counts")) == [b"id", b"bytes"]


# Finding


async def test_letters_are_found_by_every_filter(ledger_client: LedgerClient) -> None:
    a, b = await fail(ledger_client, "a1", "a2", traceback=b"File x, line 1\nnear the end")
    (c,) = await fail(
        ledger_client, "b1", error="mail.SMTPError", arguments=fingerprint_lines({"customer": "F7", "n": "x"})
    )
    counts = await ledger_client.ledger.letters.count()
    kind = next(kind.id for kind in counts.kinds if kind.error == "mail.SMTPError")
    assert await find(ledger_client) == [a, b, c]
    assert await find(ledger_client, newest_first=True) == [c, b, a]
    assert await find(ledger_client, error="SMTPError") == [c]
    assert await find(ledger_client, error="mail.SMTPError") == [c]
    assert await find(ledger_client, error="TPError") == []
    assert await find(ledger_client, function="f") == [a, b, c]
    assert await find(ledger_client, function="g") == []
    assert await find(ledger_client, kinds=(kind,)) == [c]
    assert await find(ledger_client, kinds=()) == []
    assert await find(ledger_client, key="a2") == [b]
    assert await find(ledger_client, key_prefix="a") == [a, b]
    assert await find(ledger_client, text="near the") == [a, b]
    assert await find(ledger_client, text="Oops: no") == [a, b, c]
    assert await find(ledger_client, text="app.run") == [], "the place is not searched"
    assert await find(ledger_client, argument=fingerprint_line("customer", "F7")) == [c]
    assert await find(ledger_client, argument=fingerprint_line("customer", "F")) == []
    assert await find(ledger_client, argument=fingerprint_line("omer", "F7")) == []
    died = ledger_client.stored_state().letters[c].died_ms
    assert await find(ledger_client, from_ms=died + 1) == []
    assert await find(ledger_client, before_ms=died + 1) == [a, b, c]
    assert await find(ledger_client, mark=b) == [a, b]
    assert await find(ledger_client, key="a2", mark=a) == []


async def test_pages_neither_repeat_nor_miss_a_letter(ledger_client: LedgerClient) -> None:
    ids = await fail(ledger_client, *(f"k{n}" for n in range(120)))
    more = await fail(ledger_client, *(f"k{n}" for n in range(30)), error="Other")
    for newest_first in (False, True):
        expected = sorted(ids + more, reverse=newest_first)
        assert await find(ledger_client, newest_first=newest_first, size=7) == expected
        assert await find(ledger_client, newest_first=newest_first, size=7, text="Oops") == expected
        kinds = tuple(kind.id for kind in (await ledger_client.ledger.letters.count()).kinds)
        assert len(kinds) == 2
        assert await find(ledger_client, newest_first=newest_first, size=7, kinds=kinds) == expected
    assert await find(ledger_client, key="k3", size=1) == [ids[3], more[3]]
    assert await find(ledger_client, key="k3", size=1, newest_first=True) == [more[3], ids[3]]


# Retrying


async def test_a_letter_that_is_retried_is_a_task_again(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    generation = ledger_client.stored_state().letters[id].task.generation
    assert await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)]) == [Retried.RETRIED]
    state = ledger_client.checked_state()
    assert not state.letters
    assert not state.finished
    task = state.tasks["k"]
    assert (task.attempt, task.losses, task.generation, task.flags) == (1, 0, generation + 1, REVIVED)
    assert state.deaths == {"k": (1, id)}
    (run,) = await ledger_client.take(await ledger_client.hire())
    await ledger_client.settle(completed(run))
    state = ledger_client.checked_state()
    assert not state.deaths
    assert state.finished["k"].state is ExecutionState.COMPLETED


async def test_a_retried_task_that_fails_again_has_died_twice(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    for deaths in (2, 3):
        await ledger_client.ledger.letters.retry(f"batch {deaths}", 1, [(id, 0)])
        (run,) = await ledger_client.take(await ledger_client.hire())
        await ledger_client.settle(failed(run))
        ((id, letter),) = ledger_client.checked_state().letters.items()
        assert letter.deaths == deaths


async def test_a_repeated_step_changes_nothing_and_has_the_same_answer(ledger_client: LedgerClient) -> None:
    ids = await fail(ledger_client, "a", "b", "c")
    items = [(id, 0.0) for id in ids[:2]]
    assert await ledger_client.ledger.letters.retry("batch", 1, items) == [Retried.RETRIED] * 2
    before = ledger_client.checked_state()
    assert await ledger_client.ledger.letters.retry("batch", 1, items) == [Retried.RETRIED] * 2
    assert ledger_client.checked_state().tasks == before.tasks
    assert await ledger_client.ledger.letters.retry("other", 1, items) == [Retried.GONE] * 2
    assert await ledger_client.ledger.letters.discard("third", 1, ids) == 1
    assert await ledger_client.ledger.letters.discard("third", 1, ids) == 1
    assert sorted(ledger_client.checked_state().tasks) == ["a", "b"]


async def test_a_key_that_is_taken_keeps_its_letter(ledger_client: LedgerClient) -> None:
    (first,) = await fail(ledger_client, "k")
    (second,) = await fail(ledger_client, "k")
    await ledger_client.add("k")
    answers = await ledger_client.ledger.letters.retry("batch", 1, [(first, 0), (second, 0)])
    assert answers == [Retried.KEY_TAKEN] * 2
    await ledger_client.ledger.tasks.cancel("k")
    answers = await ledger_client.ledger.letters.retry("batch", 2, [(first, 0), (second, 0)])
    assert answers == [Retried.RETRIED, Retried.KEY_TAKEN], "one task per key"
    assert list(ledger_client.checked_state().letters) == [second]


async def test_letters_may_be_retried_later(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    due = ledger_client.later()
    assert await ledger_client.ledger.letters.retry("batch", 1, [(id, due)]) == [Retried.RETRIED]
    state = ledger_client.checked_state()
    assert state.schedule == {"k": due}
    await ledger_client.ledger.tasks.cancel("k")
    assert not ledger_client.checked_state().deaths


async def test_a_replacement_of_a_retried_task_has_not_died(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    await ledger_client.ledger.tasks.enqueue([new_task("k", replace=True)])
    assert not ledger_client.checked_state().deaths


async def test_a_retried_chain_that_completes_a_run_has_not_died(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(reschedule(run.key, run.epoch, attempt=2))
    assert ledger_client.checked_state().deaths, "a retry is not the end of the run"
    (run,) = await ledger_client.take(worker)
    next_run = reschedule(run.key, run.epoch, attempt=1)
    await ledger_client.settle(with_ending(next_run, ExecutionState.COMPLETED, CANCELLED_TAIL, "{}"))
    assert not ledger_client.checked_state().deaths


async def test_payloads_move_with_letters_and_back(ledger_client: LedgerClient) -> None:
    payload = call_payload(b"x" * 5000)
    await ledger_client.ledger.payloads.store(payload)
    await ledger_client.ledger.tasks.enqueue([new_task("k", payload.reference, payload=payload)])
    worker = await ledger_client.hire()
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(failed(run))
    ((id, letter),) = ledger_client.checked_state().letters.items()
    assert letter.size > 5000
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    assert ledger_client.checked_state().payloads == {payload.id: (5000, -1)}
    (run,) = await ledger_client.take(worker)
    await ledger_client.settle(failed(run))
    ((id, letter),) = ledger_client.checked_state().letters.items()
    # A new task of the key deletes the finished record, which names the payload, too.
    await ledger_client.add("k")
    assert ledger_client.checked_state().payloads == {payload.id: (5000, -1)}
    await ledger_client.ledger.letters.discard("batch", 2, [id])
    assert not ledger_client.checked_state().payloads


async def test_a_letter_whose_payload_is_gone_stays(ledger_client: LedgerClient) -> None:
    payload = call_payload(b"x" * 5000)
    await ledger_client.ledger.payloads.store(payload)
    await ledger_client.ledger.tasks.enqueue([new_task("k", payload.reference, payload=payload)])
    (run,) = await ledger_client.take(await ledger_client.hire())
    await ledger_client.settle(failed(run))
    (id,) = ledger_client.checked_state().letters
    ledger_client.client.delete(ledger_client.ledger.keys.payload(payload.id))
    assert await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)]) == [Retried.PAYLOAD_GONE]
    assert list(ledger_client.stored_state().letters) == [id]


async def test_letters_that_somebody_has_damaged_stop_nobody(ledger_client: LedgerClient) -> None:
    ids = await fail(ledger_client, "a", "b")
    for garbage in (b"", b"x", b"\1" * 200):
        ledger_client.client.hset(ledger_client.ledger.keys.letter_records, b"%016d" % ids[0], garbage)
        assert await find(ledger_client) == ids
        assert await find(ledger_client, text="Oops") == [ids[1]]
        assert await ledger_client.ledger.letters.retry(f"{garbage!r}", 1, [(ids[0], 0)]) == [Retried.DAMAGED]
    assert await ledger_client.ledger.letters.discard("batch", 1, ids) == 2
    assert (await ledger_client.ledger.letters.count()).letters == 0


async def test_a_retried_task_that_took_its_workers_down_is_a_suspect(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k", reason=DeathCause.BURIED)
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    assert ledger_client.checked_state().tasks["k"].losses == 2
    worker = await ledger_client.hire()
    await ledger_client.take(worker)
    ledger_client.bury(worker)
    ((_, letter),) = ledger_client.checked_state().letters.items()
    assert (letter.key, letter.deaths, letter.reason) == ("k", 2, DeathCause.BURIED), "the first loss buries it again"
    assert "losses so far: 3" in letter.text


async def test_a_retried_task_that_was_not_run_is_a_letter_again(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    (run,) = await ledger_client.take(await ledger_client.hire())
    note = LetterNote(DeathCause.NOT_RUN, LETTER_MS, text="struck")
    struck = finish(
        run.key, run.epoch, ExecutionState.CANCELLED, TTL_MS, Ending("w", "struck").pack(), "{}", letter=note
    )
    await ledger_client.settle(struck)
    ((_, letter),) = ledger_client.checked_state().letters.items()
    assert (letter.key, letter.deaths, letter.reason) == ("k", 1, DeathCause.NOT_RUN)


async def test_ids_are_not_given_again_when_letters_were_lost(ledger_client: LedgerClient) -> None:
    (first,) = await fail(ledger_client, "k")
    ledger_client.client.flushdb()
    (second,) = await fail(ledger_client, "k")
    assert second > first


# Editing


async def test_an_edit_replaces_the_call(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    large = call_payload(b"y" * 6000)
    await ledger_client.ledger.payloads.store(large)
    ledger = ledger_client.ledger
    assert await ledger.letters.edit(id, 0, b"new", None, b"") is Edited.DONE
    assert await ledger.letters.edit(id, 0, b"newer", None, b"") is Edited.CHANGED
    assert await ledger.letters.edit(id, 0, b"new", None, b"") is Edited.DONE, "a repeat after a lost answer"
    assert ledger_client.checked_state().letters[id].task.call == b"new"
    for _ in range(2):
        assert await ledger.letters.edit(id, 1, b"", large, b"\nx=1\n") is Edited.DONE
    state = ledger_client.checked_state()
    assert state.call_of(state.letters[id].task) == b"y" * 6000
    assert (state.letters[id].arguments, state.letters[id].edits) == (b"\nx=1\n", 2)
    assert await ledger.letters.edit(id, 2, b"", call_payload(b"z" * 5000), b"") is Edited.PAYLOAD_MISSING
    assert await ledger.letters.edit(id, 2, b"last", None, b"") is Edited.DONE
    assert not ledger_client.checked_state().payloads
    assert await ledger.letters.edit(id + 1, 0, b"", None, b"") is Edited.GONE
    await ledger.letters.retry("batch", 1, [(id, 0)])
    assert ledger_client.checked_state().tasks["k"].call == b"last"


# Automatic tasks


async def bury_chain(ledger_client: LedgerClient, **note: Any) -> None:
    await ledger_client.ledger.tasks.seedable("old", ["chain"])
    await fail(ledger_client, "chain", reason=DeathCause.BURIED, **note)


async def test_a_buried_chain_waits_for_its_retry(ledger_client: LedgerClient) -> None:
    await bury_chain(ledger_client)
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.BURIED]
    assert await ledger_client.ledger.tasks.seedable("new", ["chain"]) == [Seed.BURIED], "also in a newer deploy"
    (id,) = ledger_client.checked_state().letters
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    state = ledger_client.checked_state()
    assert "chain" in state.tasks
    assert not state.buried_chains
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.SCHEDULE]


async def test_a_buried_chain_whose_letter_is_discarded_is_cancelled(ledger_client: LedgerClient) -> None:
    await bury_chain(ledger_client)
    (id,) = ledger_client.checked_state().letters
    await ledger_client.ledger.letters.discard("batch", 1, [id])
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.CANCELLED]
    ledger_client.client.hset(ledger_client.ledger.keys.key("deploys"), "new", ledger_client.now() + 1000)
    assert await ledger_client.ledger.tasks.seedable("new", ["chain"]) == [Seed.SCHEDULE]


async def test_a_buried_chain_that_a_user_adds_runs_again(ledger_client: LedgerClient) -> None:
    await bury_chain(ledger_client)
    await ledger_client.add("chain")
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.SCHEDULE]
    assert not ledger_client.checked_state().buried_chains


async def test_a_buried_chain_without_a_letter_can_be_retried(ledger_client: LedgerClient) -> None:
    await bury_chain(ledger_client, age_ms=0)
    assert not ledger_client.checked_state().letters
    ledger_client.client.hset(ledger_client.ledger.keys.key("deploys"), "new", ledger_client.now() + 1000)
    assert await ledger_client.ledger.tasks.seedable("new", ["chain"]) == [Seed.BURIED]
    assert await ledger_client.ledger.letters.buried_chains() == [BuriedChain("chain", ANY, None, "Oops: no")]
    assert await ledger_client.ledger.letters.revive_chains(["chain", "other"]) == 1
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.SCHEDULE]
    assert await ledger_client.ledger.letters.buried_chains() == []


async def test_a_worker_that_asked_before_the_burial_does_not_start_the_chain(ledger_client: LedgerClient) -> None:
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.SCHEDULE]
    await fail(ledger_client, "chain", reason=DeathCause.BURIED)
    await ledger_client.ledger.tasks.enqueue([new_task("chain", seed=True)])
    assert "chain" not in ledger_client.checked_state().tasks


# The release before


async def test_letters_of_the_release_before_are_taken_over(ledger_client: LedgerClient) -> None:
    await ledger_client.ledger.tasks.seedable("old", ["chain"])
    worker = await ledger_client.hire()
    await ledger_client.add("chain", "other")
    for run in await ledger_client.take(worker):
        await ledger_client.settle(ended(run, FAILED))
    client, keys = ledger_client.client, ledger_client.ledger.keys
    for key in ("chain", "other"):
        record = client.get(keys.run(key))
        assert len(record) > FINISHED_HEADER.size
        client.zadd(keys.key("dead"), {key: 123})
        client.hset(keys.key("dead-records"), key, record)
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.BURIED]
    ledger_client.ledger.letters.trim(client)
    state = ledger_client.checked_state()
    assert sorted(letter.key for letter in state.letters.values()) == ["chain", "other"]
    assert {letter.died_ms for letter in state.letters.values()} == {123}
    assert not client.exists(keys.key("dead"), keys.key("dead-records"))
    assert await ledger_client.ledger.tasks.seedable("old", ["chain"]) == [Seed.BURIED]


async def test_deaths_that_the_release_before_has_left_are_forgotten(ledger_client: LedgerClient) -> None:
    (id,) = await fail(ledger_client, "k")
    await ledger_client.ledger.letters.retry("batch", 1, [(id, 0)])
    ledger_client.client.hset(ledger_client.ledger.keys.key("deaths"), "gone", "1 0000000000000007")
    ledger_client.ledger.letters.trim(ledger_client.client)
    assert ledger_client.checked_state().deaths == {"k": (1, id)}
