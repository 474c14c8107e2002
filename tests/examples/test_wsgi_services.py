"""The Flask and Django examples, as real services: gunicorn forks them, `docket worker` runs their
tasks, and requests come over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from docket.testing.servers import ServerProcess
from tests.waiting import SECONDS, eventually_blocking

EXAMPLES = Path(__file__).parents[2] / "examples"
THREADS = ("--preload", "--threads", "2")
# gunicorn patches a worker before it loads the application there.
GREENLETS = ("--worker-class", "gevent")


@contextmanager
def program(*words: str, folder: Path, environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=folder,
            env={**os.environ, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0, log.read_text()


def request(url: str, method: str = "GET") -> dict[str, str] | None:
    """The answer, or None while the service does not answer yet."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=SECONDS) as answer:
            return json.load(answer)
    except urllib.error.HTTPError:
        raise
    except OSError:
        return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with ServerProcess("--appendonly", "yes") as server:
        yield server


def signs_up_and_is_welcomed(
    folder: Path, app: str, tasks: str, environment: dict[str, str], tmp_path: Path, kind: tuple[str, ...] = THREADS
) -> None:
    pytest.importorskip("gunicorn")
    base = f"http://127.0.0.1:{(port := free_port())}"
    gunicorn = ("gunicorn", *kind, "--workers", "2", "--bind", f"127.0.0.1:{port}", app)
    worker = ("docket", "worker", "--docket", "shop", "--tasks", tasks)
    with program(*gunicorn, folder=folder, environment=environment, log=tmp_path / "service.log"):
        eventually_blocking(
            lambda: request(f"{base}/tasks/nobody") == {"state": "unknown"},
            "the service answers",
            seen=(tmp_path / "service.log").read_text,
        )
        keys = [signed_up(base, f"user{number}@example.com") for number in range(6)]
        with program(*worker, folder=folder, environment=environment, log=tmp_path / "worker.log"):
            for key in keys:
                eventually_blocking(
                    lambda key=key: request(f"{base}/tasks/{key}") == {"state": "completed"},
                    f"{key} is completed",
                    seen=(tmp_path / "worker.log").read_text,
                )


def signed_up(base: str, email: str) -> str:
    answer = request(f"{base}/users/{email}", "POST")
    assert answer is not None
    return answer["key"]


@pytest.mark.parametrize("kind", [THREADS, GREENLETS], ids=["threads", "gevent"])
def test_a_flask_service_adds_tasks_that_a_worker_runs(
    server: ServerProcess, tmp_path: Path, kind: tuple[str, ...]
) -> None:
    pytest.importorskip("flask")
    environment = {"DOCKET_URL": server.url}
    signs_up_and_is_welcomed(EXAMPLES / "flask_service", "app:app", "tasks:tasks", environment, tmp_path, kind)


def test_a_django_project_adds_tasks_that_a_worker_runs(server: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("django")
    folder = EXAMPLES / "django_service"
    environment = {"DOCKET_URL": server.url, "SHOP_DB": str(tmp_path / "shop.sqlite3")}
    migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=folder, env={**os.environ, **environment}, check=True, timeout=SECONDS)
    signs_up_and_is_welcomed(folder, "shop.wsgi", "shop.tasks:tasks", environment, tmp_path)
