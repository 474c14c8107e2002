"""A million records that somebody has damaged: each means
the same to the scripts and to Python, and fails neither."""

from __future__ import annotations

import random
import struct
from typing import Any

from docket import Docket
from docket.codec.packing import pack_for_script
from docket.storage.records import TaskRecord, read_due, read_task
from docket.storage.scripts import assemble

CASES, BATCH = 1_000_000, 1_000
_HEADER = struct.Struct("<BBBIBIIddIH")

# Reads each record as all scripts do.
READ = """
local answer = {}
for i, bytes in ipairs(cmsgpack.unpack(ARGV[2])) do
  local task = unpack_task(bytes)
  answer[i] = {task.version, task.location, task.flags, task.attempt, losses_of(task), task.generation, task.submission,
    string.format('%.17g', task.due), string.format('%.17g', task.entry_ms), task.entry_seq, task.name, task.call,
    #pack_task(task)}
end
return answer
"""


def script() -> str:
    return assemble("read", f"-- Reads records.\n-- uses: records\n{READ}").source


def sound(chance: random.Random) -> bytes:
    name = "näme"[: chance.randrange(5)].encode()
    fields = (
        chance.choice((0, 1, 1, 1, 2, 255)), chance.randrange(6), chance.randrange(4), chance.randrange(1, 9),
        chance.randrange(256), chance.randrange(1 << 32), chance.randrange(1 << 32),
        chance.choice((0.0, 1.8e12, -1.0, 2.0**53, float("inf"), float("nan"))),
        chance.choice((0.0, 1.8e12, 2.0**60)), chance.randrange(1 << 32), len(name),
    )  # fmt: skip
    return _HEADER.pack(*fields) + name + chance.randbytes(chance.randrange(30))


def damaged(chance: random.Random) -> bytes:
    record = bytearray(sound(chance))
    match chance.randrange(5):
        case 0:
            del record[chance.randrange(len(record)) :]
        case 1:
            for _ in range(chance.randrange(1, 8)):
                record[chance.randrange(len(record))] = chance.randrange(256)
        case 2:
            at = chance.randrange(len(record))
            record[at:at] = chance.randbytes(chance.randrange(1, 12))
        case 3:
            record[:] = chance.randbytes(chance.randrange(80))
        case _:
            pass
    return bytes(record)


def same(task: TaskRecord, row: list[Any]) -> bool:
    numbers = (task.version, task.location, task.flags, task.attempt, task.losses, task.generation, task.submission)
    name = row[10].decode("utf-8", "backslashreplace")
    return (
        numbers == tuple(row[:7])
        and (task.due_ms, task.entry_ms) == (float(row[7]), float(row[8]))
        and (task.entry_seq, task.call) == (row[9], row[11])
        and task.function_name in (name, row[10].decode("utf-8", "surrogatepass") if _is_text(row[10]) else name)
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


async def test_a_million_damaged_records_mean_the_same_to_scripts_and_to_python(docket: Docket) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    print(f"\nseed {seed}")
    broken = 0
    async with docket.redis() as redis:
        sha = await redis.script_load(script())
        for _ in range(CASES // BATCH):
            records = [damaged(chance) for _ in range(BATCH)]
            rows: Any = await redis.evalsha(sha, 1, docket.key(""), "", pack_for_script(records))
            for record, row in zip(records, rows, strict=True):
                task = read_task(record)
                read_due(record)
                broken += record != b"" and task == read_task(b"")
                assert same(task, row), (seed, record, task, row)
    print(f"{CASES:,} records, of which {broken:,} are none")
