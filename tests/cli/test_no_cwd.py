"""`docket worker --no-cwd` imports nothing from the current folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Start
from .processes import surroundings

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)

# With `-m` alone, Python itself puts the current folder on the path.
PROGRAMS = {
    "as installed": [sys.executable, "-P", "-m", "docket"],
    "python -m docket": [sys.executable, "-m", "docket"],
}


def work(program: list[str], folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, "worker", "--until-finished", *options],
        cwd=folder,
        env=surroundings(environment),
        capture_output=True,
        encoding="utf-8",
    )


@pytest.fixture
def trap(folder: Path) -> Path:
    """A file that exists once a module of the folder was imported."""
    sprung = folder / "sprung"
    (folder / "trap.py").write_text(f"open({str(sprung)!r}, 'w').close()\ntasks = []\n")
    return sprung


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_current_folder_is_searched_unless_it_is_not_wanted(
    program: list[str], folder: Path, url: str, trap: Path
) -> None:
    done = work(program, folder, "--url", url, "--tasks", "trap:tasks", "--no-cwd")
    assert done.returncode == 2
    assert "there is no module 'trap'" in done.stderr
    assert not trap.exists()

    assert work(program, folder, "--url", url, "--tasks", "trap:tasks").returncode == 0
    assert trap.exists()


def test_an_environment_variable_does_the_same(folder: Path, url: str, trap: Path) -> None:
    done = work(PROGRAMS["as installed"], folder, "--url", url, "--tasks", "trap:tasks", DOCKET_WORKER_CWD="false")
    assert done.returncode == 2
    assert not trap.exists()


def test_the_processes_of_a_supervisor_do_not_search_it_either(folder: Path, url: str, start: Start) -> None:
    """A module that docket imports on its way must not come from the folder."""
    sprung = folder / "sprung"
    (folder / "colorsys.py").write_text(f"open({str(sprung)!r}, 'w').close()\n")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop.py").write_text("import colorsys\nasync def ship(): ...\ntasks = [ship]\n")
    options = ("--url", url, "--tasks", "shop:tasks", "--no-cwd", "--until-finished")
    path = surroundings()["PYTHONPATH"]
    worker = start("worker", *options, "--processes", "2", PYTHONPATH=f"{elsewhere}:{path}")
    assert worker.ends() == 0, worker.output
    assert not sprung.exists()


def test_the_children_of_a_worker_do_not_search_it_either(folder: Path, url: str) -> None:
    sprung = folder / "sprung"
    (folder / "colorsys.py").write_text(f"open({str(sprung)!r}, 'w').close()\n")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "shop.py").write_text(
        "import sys\n"
        "from docket import Docket, Process\n"
        "def ship(process: Process = Process()):\n"
        "    import colorsys\n"
        "    print('shipped with', colorsys.__file__, flush=True)\n"
        "tasks = [ship]\n"
    )
    (elsewhere / "add.py").write_text(
        "import asyncio, sys\n"
        "from docket import Docket\n"
        "from shop import ship\n"
        "async def main():\n"
        "    async with Docket('docket', sys.argv[1]) as docket:\n"
        "        await docket.add(ship)()\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, elsewhere / "add.py", url], env=surroundings(), check=True)
    path = f"{elsewhere}:{surroundings()['PYTHONPATH']}"
    done = work(
        PROGRAMS["python -m docket"], folder, "--url", url, "--tasks", "shop:tasks", "--no-cwd", PYTHONPATH=path
    )
    assert done.returncode == 0
    assert "shipped with" in done.stdout
    assert not sprung.exists()
