"""A thousand functions that have to be killed, one after the other."""

from pathlib import Path

from docket import Docket
from tests.worker.test_processes import many_timeouts


async def test_a_thousand_timeouts_in_a_row_leave_nothing_behind(docket: Docket, tmp_path: Path) -> None:
    await many_timeouts(docket, tmp_path, 1000)
