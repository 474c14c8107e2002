"""What the log has of an outage."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from docket.errors import ServerUnreachable
from docket.storage.client import outages as module
from docket.storage.client.outages import ECHO_SECONDS, Outages

GONE = ServerUnreachable("the server closed the connection")
TRYING, BACK = "trying again until the server is back", "the server is back after"


class Clock:
    now = 1000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "docket.storage")


def counts(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    lines = [record.getMessage() for record in caplog.records]
    return sum(TRYING in line for line in lines), sum(BACK in line for line in lines)


def end_outage(outages: Outages, service: str) -> None:
    outages.failed(service, service, GONE)
    outages.passed(service)


def test_a_connection_that_is_found_dead_right_after_an_outage_belongs_to_it(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    outages = Outages()
    end_outage(outages, "renewing")
    clock.now += ECHO_SECONDS / 2
    end_outage(outages, "fetching")
    assert counts(caplog) == (1, 1)
    assert not outages.is_on


def test_a_server_that_goes_away_again_is_an_outage_of_its_own(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    end_outage(outages, "renewing")
    outages.failed("fetching", "fetching", GONE)
    clock.now += ECHO_SECONDS
    outages.failed("fetching", "fetching", GONE)
    assert counts(caplog) == (2, 1)
    outages.passed("fetching")
    assert counts(caplog) == (2, 2)


def test_an_outage_a_while_after_another_is_logged(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    for _ in range(3):
        end_outage(outages, "renewing")
        clock.now += ECHO_SECONDS
    assert counts(caplog) == (3, 3)


def test_an_echo_does_not_hide_the_outages_after_it(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    outages = Outages()
    end_outage(outages, "renewing")
    clock.now += ECHO_SECONDS * 0.6
    end_outage(outages, "fetching")
    clock.now += ECHO_SECONDS * 0.6
    end_outage(outages, "staging")
    assert counts(caplog) == (2, 2)


def test_the_first_answer_wakes_the_threads_that_pause() -> None:
    outages, woken = Outages(), list[str]()
    outages.on_answer.add(lambda: woken.append("thread"))
    outages.passed("fetching")
    assert woken == []
    outages.failed("fetching", "fetching", GONE)
    outages.failed("staging", "staging", GONE)
    assert woken == []
    outages.passed("fetching")
    assert woken == ["thread"]
