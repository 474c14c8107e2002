"""The pytest plugin, as a project that uses docket sees it."""

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from docket import Docket, Worker

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "testing_an_application"


def run_pytest(folder: Path, *options: str) -> str:
    """Runs pytest in a project of its own and returns
    what it says; the plugin is found as by any user."""
    installed = any(entry.value == "docket.testing.plugin" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "docket.testing.plugin"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = f"{REPOSITORY / 'src'}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:valkey",
        *plugin,
        *options,
    ]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    return done.stdout + done.stderr


def seconds_in_tests(report: str) -> float:
    """What setting up, running and tearing down the tests took, as --durations tells."""
    return sum(float(found) for found in re.findall(r"^([\d.]+)s (?:setup|call|teardown)", report, re.MULTILINE))


def test_the_example_passes_and_is_quick() -> None:
    report = run_pytest(EXAMPLE, "--durations=0", "--durations-min=0.001")

    assert "7 passed" in report, report
    # Under two seconds after start-up; a machine that is busy with something else gets more.
    assert seconds_in_tests(report) < 2 * max(os.getloadavg()[0] / (os.cpu_count() or 1), 1), report


STRICT = """
import pytest

async def note(ran): ...

@pytest.mark.asyncio
async def test_first(docket, worker):
    await docket.add(note, key="k")(1)
    assert (await docket.snapshot()).total_tasks == 1
    await worker.run_until_finished()

@pytest.mark.asyncio
async def test_second_sees_nothing_of_the_first(docket, worker, clock):
    assert await docket.get_execution("k") is None
    assert docket.now() == clock.now()

def test_needs_no_loop(docket_url):
    assert docket_url.startswith("memory://")
"""

OVERRIDDEN = """
import pytest

@pytest.fixture
def docket_url():
    return "memory://ours"

@pytest.fixture
def worker():
    return "ours"

async def test_a_project_may_have_its_own(docket, worker):
    assert docket.url == "memory://ours"
    assert worker == "ours"
"""


@pytest.mark.parametrize(("mode", "tests", "passed"), [("strict", STRICT, 3), ("auto", OVERRIDDEN, 1)])
def test_fixtures_work_in_both_modes_of_pytest_asyncio(tmp_path: Path, mode: str, tests: str, passed: int) -> None:
    (tmp_path / "test_it.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
    )

    report = run_pytest(tmp_path)

    assert f"{passed} passed" in report, report


def test_the_plugin_is_an_entry_point() -> None:
    """Read from the project's own metadata: the package need not be installed."""
    assert 'docket = "docket.testing.plugin"' in (REPOSITORY / "pyproject.toml").read_text()


async def test_every_test_has_a_docket_of_its_own(docket: Docket, docket_url: str, worker: Worker) -> None:
    assert docket.url == docket_url
    assert worker.docket is docket
    assert (await docket.snapshot()).total_tasks == 0
