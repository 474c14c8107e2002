"""`make test-clients`: the tests of tests/clients in the environments of the clients themselves.

    python -m compat.clients [fastmcp] [prefect] [pydocket]

Exits with 0 and one line if no package index can
be reached: then there are no clients to test with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from compat.environments import PYDOCKET, ROOT, Environment, IndexUnreachable

TESTS = ROOT / "tests" / "clients"
TOOLS = ("pytest>=8.4", "pytest-asyncio>=1.2", "pytest-timeout>=2.4", "opentelemetry-sdk>=1.30")
OURS = ("./compat/pydocket", ".")
# The files have no `test_` in their names, so that
# `make test`, which lacks the clients, does not collect them.
CLIENTS = {
    "fastmcp": (Environment("fastmcp", (*OURS, "fastmcp[tasks]>=4,<5", *TOOLS), ours=True), ("fastmcp_tools.py",)),
    "prefect": (
        # Prefect 3.8 admits a newer FastAPI and SQLAlchemy, and does not work with them.
        Environment("prefect", (*OURS, "prefect>=3.6,<4", "fastapi<0.145", "sqlalchemy<2.1", *TOOLS), ours=True),
        ("prefect_server.py", "distribution.py"),
    ),
}
# pydocket itself is run by a test, which looks at what it leaves.
PYDOCKET_TESTS = "pydocket_leftovers.py"
TEST_SECONDS = 900


def run(name: str, options: list[str]) -> int:
    """The exit code of the tests of one client."""
    if name == PYDOCKET.name:
        return test(Path(sys.executable), name, (PYDOCKET_TESTS,), options, PYDOCKET_PYTHON=str(PYDOCKET.prepare()))
    environment, files = CLIENTS[name]
    return test(environment.prepare(), name, files, options)


def test(python: Path, name: str, files: tuple[str, ...], options: list[str], **variables: str) -> int:
    print(f"testing with {name} ...", flush=True)
    quiet = {"PYTHONPATH": "", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    return subprocess.run(
        [python, "-m", "pytest", "-q", "--tb=short", "-W", "default", *options, *(TESTS / file for file in files)],
        cwd=ROOT,
        env=os.environ | quiet | variables,
        timeout=TEST_SECONDS,
        check=False,
    ).returncode


def main(arguments: list[str]) -> int:
    names = [*CLIENTS, PYDOCKET.name]
    chosen = [name for name in arguments if name in names] or names
    options = [argument for argument in arguments if argument not in names]
    codes: list[int] = []
    for name in chosen:
        try:
            codes.append(run(name, options))
        except IndexUnreachable as error:
            print(f"skipped: {error}")
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
