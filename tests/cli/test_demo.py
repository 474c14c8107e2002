"""The first five minutes: `docket demo`, and `docket bench` on one's own server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest
import redis

from tests.waiting import eventually_blocking

from .conftest import Command, Start
from .processes import Terminal, surroundings

# Processes take long to start on a busy machine.
pytestmark = pytest.mark.timeout(600)


def leftovers() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("docket-demo-*"))


def test_the_demo_needs_no_terminal_and_tells_what_happened(start: Start) -> None:
    demo = start("demo", "--for", "5s")
    assert demo.ends() == 0, demo.output
    assert "Orders come in" in demo.output
    assert "seconds on the embedded engine" in demo.output
    assert "2,000 pages were indexed" in demo.output
    assert "no courier had more than" in demo.output
    assert "Try next:" in demo.output
    assert "Traceback" not in demo.output


def test_the_example_is_the_same_demo(folder: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "demo.py"
    run = subprocess.run(
        [sys.executable, str(example), "--for", "2s"], cwd=folder, env=surroundings(), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "seconds on the embedded engine" in run.stdout


def test_on_a_terminal_the_demo_is_a_live_view(folder: Path) -> None:
    before = leftovers()
    demo = Terminal("demo", "--for", "30s")
    try:
        demo.shows("docket demo: a small shop")
        demo.shows("Orders come in")
        demo.shows("place_order")
        demo.types(b"q")
        assert demo.ends() == 0
        demo.shows("Try next:")
        assert demo.modes[3] == demo.before[3]
    finally:
        demo.close()
    eventually_blocking(lambda: leftovers() <= before, "the folder is gone")


def test_the_demo_serves_its_dashboard_and_ends_by_itself(start: Start) -> None:
    demo = start("demo", "--for", "5s", "--web")
    demo.says("The dashboard is at http://127.0.0.1:")
    address = demo.output.partition("The dashboard is at ")[2].split()[0]
    assert httpx.get(f"{address}shop/now").status_code == 200
    assert demo.ends() == 0, demo.output
    assert "seconds on the embedded engine" in demo.output
    assert "Traceback" not in demo.output


def test_on_a_terminal_the_demo_with_a_dashboard_stays_until_the_user_quits(folder: Path) -> None:
    demo = Terminal("demo", "--for", "2s", "--web")
    try:
        demo.shows("dashboard: http://127.0.0.1:")
        # The story has begun again.
        demo.shows("The shop closes")
        eventually_blocking(lambda: "Orders come in" in demo.text.partition("The shop closes")[2], "the second round")
        demo.types(b"\x03")
        assert demo.ends() == 0
        demo.shows("Try next:")
    finally:
        demo.close()


def test_ctrl_c_ends_the_demo_with_what_happened_so_far(start: Start) -> None:
    demo = start("demo", "--for", "30s")
    demo.says("completed")
    demo.send(signal.SIGINT)
    demo.ends()
    assert "seconds on the embedded engine" in demo.output
    assert "Traceback" not in demo.output


def keys_that_stay(url: str) -> set[bytes]:
    """The keys that never expire, those of other tests included; none of an embedded engine."""
    if not url.startswith("redis:"):
        return set()
    with redis.Redis.from_url(url) as client:
        # -1: it never expires. A key that has just expired is -2.
        return {key for key in client.scan_iter() if client.pttl(key) == -1}


def test_a_bench_measures_the_server_and_leaves_nothing_behind(any_url: str, docket_command: Command) -> None:
    before = keys_that_stay(any_url)
    result = docket_command("bench", "--url", any_url, "--tasks", "300", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    for name in ("add_per_second", "add_many_per_second", "run_per_second"):
        assert found[name] > 0
    for name in ("round_trip_ms", "add_to_running_ms", "add_to_result_ms"):
        assert 0 < found[name]["p50"] <= found[name]["p99"]
    assert keys_that_stay(any_url) == before


def test_a_bench_of_the_embedded_engine_needs_no_server(docket_command: Command) -> None:
    result = docket_command("bench", "--url", "memory://bench", "--tasks", "100")
    assert result.exit_code == 0, result.output
    assert "run, one worker, concurrency 100" in result.stdout
    assert "from add to result" in result.stdout


def test_a_bench_takes_no_name_of_a_docket_since_it_has_its_own(docket_command: Command) -> None:
    result = docket_command("bench", "--url", "memory://bench", "--docket", "shop")
    assert result.exit_code == 2
    assert "--docket" in result.output
