"""`make test-clients`: the tests of tests/clients in the environments of the clients themselves.

    python -m compat.clients [fastmcp] [prefect]

Exits with 0 and one line if no package index can be reached: then there are no clients to test with.
"""

from __future__ import annotations

import os
import subprocess
import sys

from compat.environments import ROOT, Environment, IndexUnreachable

TESTS = ROOT / "tests" / "clients"
TOOLS = ("pytest>=8.4", "pytest-asyncio>=1.2", "pytest-timeout>=2.4", "opentelemetry-sdk>=1.30")
OURS = ("./compat/pydocket", ".")
# The files have no `test_` in their names, so that `make test`, which lacks the clients, does not collect them.
CLIENTS = {
    "fastmcp": (Environment("fastmcp", (*OURS, "fastmcp[tasks]>=4,<5", *TOOLS), ours=True), ("fastmcp_tools.py",)),
    "prefect": (
        # Prefect 3.8 admits a newer FastAPI and SQLAlchemy, and does not work with them.
        Environment("prefect", (*OURS, "prefect>=3.6,<4", "fastapi<0.145", "sqlalchemy<2.1", *TOOLS), ours=True),
        ("prefect_server.py", "distribution.py"),
    ),
}
TEST_SECONDS = 900


def run(environment: Environment, files: tuple[str, ...], options: list[str]) -> int:
    """The exit code of the tests."""
    python = environment.prepare()
    print(f"testing with {environment.name} ...", flush=True)
    return subprocess.run(
        [python, "-m", "pytest", "-q", "--tb=short", "-W", "default", *options, *(TESTS / file for file in files)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": "", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"},
        timeout=TEST_SECONDS,
        check=False,
    ).returncode


def main(arguments: list[str]) -> int:
    chosen = [name for name in arguments if name in CLIENTS] or list(CLIENTS)
    options = [argument for argument in arguments if argument not in CLIENTS]
    codes: list[int] = []
    for name in chosen:
        try:
            codes.append(run(*CLIENTS[name], options))
        except IndexUnreachable as error:
            print(f"skipped: {error}")
    return max(codes, default=0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
