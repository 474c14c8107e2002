"""Every example in the documentation runs, as a reader would run it."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# Shown live for about twenty seconds, and tested with the command line.
LONG = {"demo.py"}
PROGRAMS = sorted(
    path
    for path in EXAMPLES.rglob("*.py")
    if path.name not in LONG and "asyncio.run(" in path.read_text() and not path.name.startswith(("test_", "conftest"))
)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_example_runs_without_a_warning(program: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", str(program)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for residue in ("Exception ignored", "never retrieved", "was destroyed but it is pending", "Warning"):
        assert residue not in done.stderr, done.stderr


def test_the_readme_shows_the_quick_start_as_it_is() -> None:
    shown = (EXAMPLES.parent / "README.md").read_text()
    program = (EXAMPLES / "quickstart.py").read_text().split('"""\n\n', 1)[1]
    assert program.strip() in shown
