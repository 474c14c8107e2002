"""`docket web`: where it listens, whom it lets in, and how it stops."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from docket.cli.web import is_local
from docket.web.guards import hash_password
from tests.waiting import eventually_blocking

from .conftest import Command, Start
from .processes import Process

_ADDRESS = re.compile(r"is at (http://\S+)")


def address_of(process: Process) -> str:
    """Where the dashboard is, once it answers."""
    eventually_blocking(lambda: _ADDRESS.search(process.output) or process.exit_code is not None, "the address")
    found = _ADDRESS.search(process.output)
    assert found, process.output
    return found[1]


def test_the_dashboard_answers_and_stops_on_sigterm(start: Start, url: str) -> None:
    process = start("web", "--url", url, "--docket", "shop", "--port", "0")
    address = address_of(process)
    found = httpx.get(address, follow_redirects=True)
    assert found.status_code == 200
    assert "shop" in found.text
    process.send(signal.SIGTERM)
    assert process.ends() == 0
    # One line: where it is. Requests are not logged.
    assert len(process.output.splitlines()) == 1


def test_the_dashboard_stops_while_a_tab_is_open(start: Start, url: str) -> None:
    process = start("web", "--url", url, "--docket", "shop", "--port", "0")
    address = address_of(process)
    with httpx.Client() as client:
        client.get(address)
        process.send(signal.SIGINT)
        assert process.ends() == 0


def test_the_dashboard_shows_several_dockets(start: Start, url: str) -> None:
    process = start("web", "--url", url, "--docket", "shop", "--also", "mill", "--port", "0")
    found = httpx.get(address_of(process))
    assert "shop/now" in found.text
    assert "mill/now" in found.text


def test_a_server_that_is_away_is_said_on_the_page(start: Start, port: int) -> None:
    process = start("web", "--url", f"redis://localhost:{port}/0", "--docket", "shop", "--port", "0")
    found = httpx.get(f"{address_of(process)}shop/now")
    assert found.status_code == 503
    assert "cannot be reached" in found.text
    assert 'http-equiv="refresh"' in found.text


def test_another_host_needs_a_guard(docket_command: Command) -> None:
    found = docket_command("web", "--host", "0.0.0.0")
    assert found.exit_code == 2
    assert "--users-file" in found.stderr


def test_another_name_of_the_host_is_refused(start: Start, url: str) -> None:
    process = start("web", "--url", url, "--docket", "shop", "--port", "0", "--allow-host", "dash.example")
    address = address_of(process)
    assert httpx.get(f"{address}shop/now", headers={"host": "evil.example"}).status_code == 403
    assert httpx.get(f"{address}shop/now", headers={"host": "dash.example"}).status_code == 200


def test_users_come_in_with_their_passwords(start: Start, url: str, folder: Path) -> None:
    users = folder / "users"
    users.write_text(f"# the team\nanna:viewer:{hash_password('s3cret:x')}\nbert:admin:plain\n")
    process = start("web", "--url", url, "--docket", "shop", "--port", "0", "--users-file", str(users))
    address = address_of(process)
    assert httpx.get(f"{address}shop/now").status_code == 401
    for name, password, status in (
        ("anna", "s3cret:x", 200),
        ("anna", "plain", 401),
        ("bert", "plain", 200),
        ("carl", "s3cret:x", 401),
    ):
        for _ in range(2):
            assert httpx.get(f"{address}shop/now", auth=(name, password)).status_code == status
    change = httpx.post(f"{address}shop/now", auth=("anna", "s3cret:x"), headers={"sec-fetch-site": "same-origin"})
    assert change.status_code == 403


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "has no users"),
        ("anna", "line 1 of"),
        ("anna:viewer:", "line 1 of"),
        ("\nanna:root:secret-word", "line 2 of"),
        ("anna:viewer:scrypt$x", "its hash is damaged"),
        ("anna:viewer:secret-word\nanna:admin:secret-word", "a line of this name before"),
    ],
)
def test_a_bad_file_of_users_is_an_error_that_names_the_line(
    docket_command: Command, folder: Path, content: str, problem: str
) -> None:
    users = folder / "users"
    users.write_text(content)
    found = docket_command("web", "--users-file", str(users))
    assert found.exit_code == 2
    assert problem in found.stderr
    assert "secret-word" not in found.stderr


def test_a_port_that_is_taken_is_one_clear_line(docket_command: Command, url: str, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = docket_command("web", "--url", f"embedded://{folder}", "--port", str(port))
    assert found.exit_code == 1
    assert f"docket: cannot listen on 127.0.0.1 port {port}: Address already in use\n" in found.stderr


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_which_addresses_are_this_machines_own(host: str, expected: bool) -> None:
    assert is_local(host) is expected
