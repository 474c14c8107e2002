"""The lines of a run are made from prepared parts.
Nobody can tell them from those of `Logger.info`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Generator
from datetime import datetime, timedelta

import pytest

from docket import Docket
from docket.worker.running.reporter import LogTemplate
from tests.running import run_everything

logger = logging.getLogger("tests.log_records")
# These differ from line to line.
OF_ITS_OWN = {"msg", "args", "created", "msecs", "relativeCreated", "lineno", "funcName"}


def place() -> None: ...


@pytest.fixture
def template() -> LogTemplate:
    return LogTemplate(logger, logging.INFO, place)


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> Generator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO):
        yield caplog


def both(template: LogTemplate) -> None:
    template.log("%s and %d", ("a", 7), {"docket.key": "k"})
    logger.info("%s and %d", "a", 7, extra={"docket.key": "k"})


@pytest.mark.parametrize("where", ["main", "thread", "task"])
def test_a_record_has_the_fields_of_a_usual_record(
    where: str, template: LogTemplate, info: pytest.LogCaptureFixture
) -> None:
    async def in_a_task() -> None:
        both(template)

    # The first line prepares the parts, in another place.
    both(template)
    match where:
        case "main":
            both(template)
        case "thread":
            thread = threading.Thread(target=both, args=(template,), name="another thread")
            thread.start()
            thread.join()
        case _:
            asyncio.run(in_a_task())

    ours, usual = info.records[-2:]
    assert ours.getMessage() == usual.getMessage() == "a and 7"
    assert ours.__dict__.keys() == usual.__dict__.keys()
    same = ours.__dict__.keys() - OF_ITS_OWN
    assert {name: ours.__dict__[name] for name in same} == {name: usual.__dict__[name] for name in same}
    assert 0 <= usual.created - ours.created < 60
    assert abs((usual.relativeCreated - ours.relativeCreated) - (usual.created - ours.created) * 1000) < 1
    assert 0 <= ours.msecs < 1000
    assert (ours.funcName, ours.lineno) == ("place", place.__code__.co_firstlineno)


def test_the_application_may_make_its_own_records(template: LogTemplate, info: pytest.LogCaptureFixture) -> None:
    class OwnRecord(logging.LogRecord):
        pass

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(OwnRecord)
    try:
        both(template)
    finally:
        logging.setLogRecordFactory(before)

    assert [type(record) for record in info.records] == [OwnRecord, OwnRecord]


def test_filters_see_the_record(template: LogTemplate, info: pytest.LogCaptureFixture) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        return False

    logger.addFilter(refuse)
    try:
        both(template)
    finally:
        logger.removeFilter(refuse)

    assert info.records == []


async def test_the_lines_of_a_run_have_the_labels_of_its_task(docket: Docket, info: pytest.LogCaptureFixture) -> None:
    async def greet(name: str) -> None: ...

    execution = await docket.add(greet, key="hello")("Ada")
    await run_everything(docket)

    begun, ended = (record for record in info.records if "greet(...){hello}" in record.getMessage())
    for record in (begun, ended):
        labels = record.__dict__
        assert (labels["docket.name"], labels["docket.task"], labels["docket.key"]) == (docket.name, "greet", "hello")
        assert (labels["docket.attempt"], labels["redelivered"]) == (1, False)
        # The server may have moved the due time to its own clock.
        assert abs(datetime.fromisoformat(labels["docket.when"]) - execution.when) < timedelta(hours=1)
        assert isinstance(labels["punctuality"], float)
    assert begun.getMessage().startswith("↪ [")
    assert ended.getMessage().startswith("↩ [")
    assert ended.__dict__["duration"] >= 0
