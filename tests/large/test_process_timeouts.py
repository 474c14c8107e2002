"""A thousand functions that have to be killed, one after the other."""

import time
from pathlib import Path

from docket import Docket
from tests.worker.test_processes import many_timeouts

COUNT = 1000


async def test_a_thousand_timeouts_in_a_row_leave_nothing_behind(docket: Docket, tmp_path: Path) -> None:
    began = time.monotonic()
    await many_timeouts(docket, tmp_path, COUNT)
    seconds = time.monotonic() - began
    print(f"{COUNT:,} time-outs in {seconds:,.0f} s, {2 * seconds / COUNT:.2f} s for each child")
