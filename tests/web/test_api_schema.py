"""The API keeps the promises of its OpenAPI document: schemathesis makes up requests, good and bad
ones, and compares the answers."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated
from uuid import uuid4

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.applications import Starlette

from docket import Docket, Logged
from docket.web import app
from docket.web.actions import ACTIONS
from docket.web.api.openapi import describe
from docket.web.api.reads import READS
from docket.web.api.routes import Dockets

from .conftest import SAME_ORIGIN
from .served import served

# Requests for each operation, besides those for each value at the edge of its range.
EXAMPLES = 5
# Valid JSON may still be refused: a filter that is no filter, a function that is not there.
EXCLUDED = [positive_data_acceptance]


async def ship(order: Annotated[str, Logged], weight: float = 1.0) -> None:
    pass


@asynccontextmanager
async def dashboard() -> AsyncGenerator[Starlette]:
    name = f"schema-{uuid4().hex}"
    async with Docket("shop", f"memory://{name}", codec="json") as docket:
        docket.register(ship)
        for number in range(5):
            await docket.add(ship, docket.now() + timedelta(hours=1), key=f"order-{number}")(f"#{number}")
        yield app(docket, guard=None)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(dashboard) as address:
        yield f"{address}/api/v1"


# A busy machine is not a failure.
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]
# How a request that the document does not allow is refused.
REFUSED = [400, 404, 405, 406, 409, 413, 415]
config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSED}}})
document = describe(["shop"], READS, ACTIONS.values(), Dockets)
# A stream of events does not end.
schema = schemathesis.openapi.from_dict(document, config=config).exclude(path_regex="/events$")


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=SLOW)
def test_every_answer_is_as_the_document_says(case: schemathesis.Case, address: str) -> None:
    case.call_and_validate(base_url=address, headers=SAME_ORIGIN, excluded_checks=EXCLUDED)


def test_the_document_is_served(address: str) -> None:
    found = httpx.get(f"{address}/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    assert found["paths"] == document["paths"]
    assert found["servers"] == [{"url": "/api/v1"}]
