"""A sync docket in a program that gevent has patched, as gunicorn's gevent workers are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from docket.testing.servers import ServerProcess
from tests.waiting import SECONDS

from .workers import working

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import os, sys
import gevent
from docket.sync import Docket
from tests.sync.tasks import double

docket = Docket(os.environ["PROGRAM_NAME"], os.environ["PROGRAM_URL"])


def result(number):
    return docket.add(double)(number).get_result()


assert result(1) == 2
ticks = []


def tick():
    while True:
        ticks.append(1)
        gevent.sleep(0)


gevent.spawn(tick)
jobs = [gevent.spawn(result, number) for number in range(30)]
gevent.joinall(jobs)
assert [job.get() for job in jobs] == [2 * number for number in range(30)]
assert len(docket.add_many(docket.call(double)(number) for number in range(30))) == 30
# Other greenlets run while these wait.
assert len(ticks) > 30, ticks
child = os.fork()
if child == 0:
    assert result(5) == 10
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert result(7) == 14
late = docket.add(double, when=docket.now() + __import__("datetime").timedelta(hours=1))(1)
try:
    with gevent.Timeout(0.05):
        late.get_result()
except gevent.Timeout:
    pass
assert result(8) == 16
docket.close()
"""


def test_greenlets_share_a_docket_and_do_not_block_each_other(server: ServerProcess, name: str) -> None:
    with working(name, server.url):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PROGRAM_URL": server.url, "PROGRAM_NAME": name},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
