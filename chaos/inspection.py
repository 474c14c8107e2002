"""Reads the server after the drain: the record of every task, and everything else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from docket import Docket, ExecutionState
from docket.ledger import read_ending
from docket.ledger.letters import DeathCause
from docket.storage.keys import bytes_text
from docket.storage.letters import LetterRecord, read_letter
from docket.storage.records import FinishedRecord, read_finished
from docket.storage.schema.keys import GROUP

from .histories import History
from .work import NAMING
from .work.changes import replaceable
from .work.plain import plain

PAGE = 500
# More than the history of a docket has.
MOST_FINISHED_RUNS = 50_000
BURIED = (DeathCause.BURIED, DeathCause.UNDECODABLE, DeathCause.REFUSED)


async def inspect(client: Any, docket: Docket, history: History) -> None:
    """Writes one `record` per finished task, one `key`
    per other key, and the state of the streams."""
    letters = {int(id): read_letter(data) for id, data in (await client.hgetall(docket.keys.letter_records)).items()}
    buried = {letter.key for letter in letters.values() if letter.reason in BURIED}
    prefix = docket.keys.prefix
    cursor, is_first = 0, True
    while cursor or is_first:
        cursor, names = await client.scan(cursor, f"{prefix}:*", PAGE)
        is_first = False
        await _note_page(client, docket, history, names, buried)
    for stream in (docket.keys.stream, docket.keys.front):
        await _note_stream(client, history, stream)
    strikes = await client.hkeys(docket.keys.strikes)
    history.write("strikes", count=sum(field != b"version" for field in strikes))
    for id, letter in sorted(letters.items()):
        _note_letter(history, id, letter)
    for key in sorted(buried):
        history.write("buried", key=key)
    await _note_statistics(docket, history)
    await _note_finished_runs(docket, history)
    history.write("inspected")


async def _note_statistics(docket: Docket, history: History) -> None:
    found = await docket.stats(since=timedelta(hours=2))
    counts = {one.function: {kind.value: number for kind, number in one.endings.items()} for one in found.functions}
    history.write("statistics", functions=counts)


async def _note_finished_runs(docket: Docket, history: History) -> None:
    found = await docket.history(limit=MOST_FINISHED_RUNS)
    runs = [[run.function, run.key, run.ending.value, run.attempt, run.is_failure] for run in found]
    history.write("finished_runs", runs=runs)


def _note_letter(history: History, id: int, letter: LetterRecord) -> None:
    history.write(
        "letter",
        id=id,
        key=letter.key,
        function=letter.task.function_name,
        reason=letter.reason,
        deaths=letter.deaths,
        epoch=letter.epoch,
        generation=letter.task.generation,
    )


def _note_record(history: History, key: str, record: FinishedRecord, **details: Any) -> None:
    history.write(
        "record",
        key=key,
        function=record.task.function_name,
        state=record.state.value,
        epoch=record.epoch,
        generation=record.task.generation,
        attempt=record.task.attempt,
        error=read_ending(record.tail).error,
        **details,
    )


async def _note_page(client: Any, docket: Docket, history: History, names: list[bytes], buried: set[str]) -> None:
    runs, prefix = docket.keys.run(""), docket.keys.prefix
    async with client.pipeline(transaction=False) as pipeline:
        for raw in names:
            pipeline.pttl(raw)
            pipeline.type(raw)
            pipeline.get(raw) if bytes_text(raw).startswith(runs) else pipeline.exists(raw)
        answers = await pipeline.execute()
    for number, raw in enumerate(names):
        ttl, kind, data = answers[3 * number : 3 * number + 3]
        name = bytes_text(raw)
        if not name.startswith(runs):
            history.write("key", name=name[len(prefix) + 1 :], type=kind.decode(), ttl=ttl)
        elif data is not None:
            key, record = name[len(runs) :], read_finished(data)
            details = {"token": await _token(docket, key, record), "result": await _result(docket, key, record)}
            _note_record(history, key, record, ttl=ttl, buried=key in buried, **details)


async def _token(docket: Docket, key: str, record: FinishedRecord) -> str | None:
    """The first argument of the call. Only tasks that are replaced, and those with a generated key,
    have another token than their key."""
    if record.task.function_name not in (replaceable.__name__, plain.__name__):
        return key
    execution = await docket.get_execution(key)
    return execution.args[0] if execution is not None and execution.args else None


async def _result(docket: Docket, key: str, record: FinishedRecord) -> str | None:
    """The name of the run whose result was kept."""
    if record.task.function_name not in NAMING or record.state is not ExecutionState.COMPLETED:
        return None
    execution = await docket.get_execution(key)
    return await execution.get_result() if execution is not None else None


async def _note_stream(client: Any, history: History, stream: str) -> None:
    if not await client.exists(stream):
        return
    pending, consumers = 0, list[str]()
    for group in await client.xinfo_groups(stream):
        if group["name"] == GROUP.encode():
            pending = group["pending"]
            consumers = [bytes_text(consumer["name"]) for consumer in await client.xinfo_consumers(stream, GROUP)]
    history.write(
        "stream",
        name=stream.rpartition(":")[2],
        length=await client.xlen(stream),
        pending=pending,
        consumers=consumers,
    )
