"""A task that runs at a time of day."""

import asyncio
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from docket import Cron, Docket, Worker


async def nightly_report(cron: Cron = Cron("30 2 * * *", tz=ZoneInfo("Europe/Berlin"))) -> None:
    """02:30 in Berlin, summer and winter."""


async def every_hour(cron: Cron = Cron("@hourly")) -> None: ...


async def main() -> None:
    # On 29 March 2026 the clocks in Berlin go from 02:00 to 03:00.
    # There is no 02:30 that night, so the task runs at 03:00.
    night_before = datetime(2026, 3, 29, 0, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    print(Cron("30 2 * * *", tz=ZoneInfo("Europe/Berlin")).slot_after(night_before))
    async with Docket(name="cron", url="memory://cron") as docket:
        docket.register(nightly_report)
        docket.register(every_hour)
        async with Worker(docket) as worker:
            working = asyncio.create_task(worker.run_forever())
            while await docket.get_execution("every_hour") is None:
                await asyncio.sleep(0.01)
            execution = await docket.get_execution("every_hour")
            assert execution is not None
            assert execution.when.minute == 0
            assert execution.when > datetime.now(UTC)
            print("the next full hour is", execution.when)
            working.cancel()
            await working


asyncio.run(main())
