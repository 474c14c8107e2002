"""The floor: three bare scripts that do what `enqueue_new`, `take` and `settle` must do for a plain
task, and nothing else. They know no leases, limits, pauses, suspects, statistics or listeners, and
they check nothing. `python -m bench.instructions` counts their instructions beside docket's.

They use the commands and the batches of docket's scripts, and records of the same sizes: what they
cost, docket cannot go below without another key layout.
"""

from __future__ import annotations

from typing import Any, cast

from redis import Redis

from docket.codec.packing import pack_for_script

ENQUEUED_AT_ONCE, TAKEN_AT_ONCE = 200, 50

ENQUEUE = """
local calls, fields = cmsgpack.unpack(ARGV[1]), {}
for i = 1, #calls, 2 do
  redis.call('XADD', KEYS[1] .. 'stream', '*', 'k', calls[i])
  fields[i], fields[i + 1] = calls[i], calls[i + 1]
end
redis.call('HSET', KEYS[1] .. 'tasks', unpack(fields))
"""

TAKE = """
local found = redis.call('XREADGROUP', 'GROUP', 'g', ARGV[1], 'COUNT', ARGV[2], 'STREAMS', KEYS[1] .. 'stream', '>')
local keys, fields, answer = {}, {}, {}
for i, entry in ipairs(found[1][2]) do keys[i] = entry[2][2] end
local tasks = redis.call('HMGET', KEYS[1] .. 'tasks', unpack(keys))
for i, entry in ipairs(found[1][2]) do
  fields[2 * i - 1], fields[2 * i] = keys[i], ARGV[3] .. entry[1]
  answer[3 * i - 2], answer[3 * i - 1], answer[3 * i] = keys[i], tasks[i], i
end
redis.call('HSET', KEYS[1] .. 'running', unpack(fields))
return answer
"""

SETTLE = """
local keys, ids = cmsgpack.unpack(ARGV[1]), {}
local runs, tasks = redis.call('HMGET', KEYS[1] .. 'running', unpack(keys)), redis.call('HMGET', KEYS[1] .. 'tasks', unpack(keys))
for i, key in ipairs(keys) do
  redis.call('SET', KEYS[1] .. 'runs:=' .. key, ARGV[2] .. tasks[i], 'PX', 900000)
  ids[i] = string.sub(runs[i], #ARGV[3] + 1)
end
redis.call('HDEL', KEYS[1] .. 'running', unpack(keys))
redis.call('HDEL', KEYS[1] .. 'tasks', unpack(keys))
redis.call('XACK', KEYS[1] .. 'stream', 'g', unpack(ids))
redis.call('XTRIM', KEYS[1] .. 'stream', 'MINID', ids[#ids])
return 1
"""

# As long as those of docket's records for a call with one small number.
RECORD, RUN, ENDING = b"r" * 68, b"w" * 56, b"e" * 48


def bare_load(url: str, tasks: int, *, drains: bool) -> None:
    """Enqueues tasks, and drains them unless told otherwise."""
    client = cast(Any, Redis).from_url(url)
    enqueue, take, settle = (client.register_script(source) for source in (ENQUEUE, TAKE, SETTLE))
    client.xgroup_create("bare:stream", "g", "0", mkstream=True)
    for first in range(0, tasks, ENQUEUED_AT_ONCE):
        keys = [f"{number:036d}" for number in range(first, min(first + ENQUEUED_AT_ONCE, tasks))]
        calls = [value for key in keys for value in (key.encode(), RECORD)]
        enqueue(["bare:"], [pack_for_script(calls)])
    for _ in range(0, tasks if drains else 0, TAKEN_AT_ONCE):
        taken = take(["bare:"], ["worker", TAKEN_AT_ONCE, RUN])
        settle(["bare:"], [pack_for_script(taken[::3]), ENDING, RUN])
    client.close()
