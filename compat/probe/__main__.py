"""`make probe`: run the scenarios on both sides and list the differences.

    python -m compat.probe [--side pydocket|docket] [GROUP...]

Exits with 1 if a difference is not in the table of docs/pydocket.md, with 0 if every difference is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

from compat.environments import EXTRAS, FOLDER, PYDOCKET, ROOT, Environment, IndexUnreachable
from compat.probe.comparing import Comparison, compare, read_deliberate, read_observations

HERE = Path(__file__).parent
TABLE = ROOT / "docs" / "pydocket.md"
OURS = Environment("docket", ("-e", str(ROOT), *EXTRAS), ours=True)
SIDE_SECONDS = 1200


def all_groups() -> list[str]:
    return sorted(file.stem for file in HERE.joinpath("scenarios").glob("[a-z]*.py"))


@contextlib.contextmanager
def server() -> Generator[str]:
    """A server for one run, on a free port of the loopback, with nothing written to disk."""
    from docket.storage.embedded import find_server

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [find_server(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            _wait_until_up(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_up(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def observe(environment: Environment, url: str, groups: list[str]) -> Path:
    """The observations of one side, in a file."""
    python = environment.prepare()
    file = FOLDER / f"observed-{environment.name}.jsonl"
    _forget(file, groups)
    print(f"running {environment.name} ...", flush=True)
    for group in groups:
        done = subprocess.run(
            [python, "-m", "compat.probe.observe", url, file, group],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            timeout=SIDE_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps([f"{group}.exit", done.returncode]) + "\n")
    return file


def _forget(file: Path, groups: list[str]) -> None:
    """Drops the observations of these groups: a run of
    some groups leaves those of the others as they are."""
    lines = file.read_text("utf-8").splitlines(keepends=True) if file.exists() else []
    kept = [line for line in lines if json.loads(line)[0].split(".")[0] not in groups]
    file.write_text("".join(kept), "utf-8")


def report(comparison: Comparison) -> int:
    for difference in sorted(comparison.differences, key=lambda each: (each.row or "", each.observation)):
        print(f"\n{difference.observation}: {difference.row or 'NOT IN THE TABLE'}")
        print(f"  pydocket: {json.dumps(difference.theirs, ensure_ascii=False)[:600]}")
        print(f"  docket:   {json.dumps(difference.ours, ensure_ascii=False)[:600]}")
    for row in comparison.undocumented:
        print(f"\n{TABLE.name} has no row {row!r}")
    for pattern in comparison.unused:
        print(f"\nno difference matches {pattern!r} of differences.toml any more")
    unexplained = len(comparison.unexplained)
    known = len(comparison.differences) - unexplained
    print(f"\n{comparison.compared} observations, {known} deliberate differences, {unexplained} not in the table")
    return 1 if unexplained or comparison.undocumented else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m compat.probe", description=__doc__)
    parser.add_argument("groups", nargs="*", default=all_groups(), help="which groups of scenarios (default: all)")
    parser.add_argument("--side", choices=("pydocket", "docket"), help="run one side only and keep the other's file")
    chosen = parser.parse_args()
    files = {}
    try:
        with server() as url:
            for environment in (PYDOCKET, OURS):
                if chosen.side in (None, environment.name):
                    files[environment.name] = observe(environment, url, chosen.groups)
                else:
                    files[environment.name] = FOLDER / f"observed-{environment.name}.jsonl"
    except IndexUnreachable as error:
        print(f"skipped: {error}")
        return 0
    theirs, ours = (
        {
            observation: value
            for observation, value in read_observations(files[side]).items()
            if observation.split(".")[0] in chosen.groups
        }
        for side in ("pydocket", "docket")
    )
    table = TABLE.read_text("utf-8") if TABLE.exists() else ""
    comparison = compare(theirs, ours, read_deliberate(HERE / "differences.toml"), table)
    comparison.unused = [pattern for pattern in comparison.unused if pattern.split(".")[0] in chosen.groups]
    return report(comparison)


if __name__ == "__main__":
    sys.exit(main())
