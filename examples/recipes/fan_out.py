"""Fan-out: one task adds many, and the last of them adds the task that puts the results together.

No task waits for another one, so a fleet of any size can run it. A hash in Redis decides which part
is the last: a part that runs twice, after a crash, changes nothing.
"""

import asyncio

from docket import CurrentDocket, Docket, Worker

summaries: list[str] = []


async def split(report: str, parts: int, docket: Docket = CurrentDocket()) -> None:
    calls = [docket.call(count_part, key=f"{report}-part-{part}")(report, part, parts) for part in range(parts)]
    await docket.add_many(calls)  # the keys make a second run of `split` harmless


async def count_part(report: str, part: int, parts: int, docket: Docket = CurrentDocket()) -> int:
    words = 100 + part  # the work
    async with docket.redis() as redis:
        done = docket.key(f"parts-of-{report}")
        # One transaction, so exactly one part sees that all are there.
        async with redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(done, str(part), words).expire(done, 24 * 3600).hlen(done)
            *_, count = await pipeline.execute()
    if count == parts:
        await docket.add(put_together, key=f"{report}-summary")(report)
    return words


async def put_together(report: str, docket: Docket = CurrentDocket()) -> int:
    async with docket.redis() as redis:
        total = sum(int(words) for words in await redis.hvals(docket.key(f"parts-of-{report}")))
    summaries.append(f"{report}: {total} words")
    return total


async def main() -> None:
    async with Docket(name="fan-out", url="memory://fan-out") as docket:
        for function in (split, count_part, put_together):
            docket.register(function)
        await docket.add(split)("sales", 10)
        # A program that is not a task may simply wait for all of them.
        executions = await docket.add_many([docket.call(count_part)("wages", part, 4) for part in range(4)])
        async with Worker(docket) as worker:
            await worker.run_until_finished()
        print(await asyncio.gather(*(execution.get_result() for execution in executions)))
    print(*summaries, sep="\n")
    assert sorted(summaries) == ["sales: 1045 words", "wages: 406 words"]


asyncio.run(main())
