"""The tests of limits open several dockets each, on the servers that the tests run on."""

import pytest

from docket.testing.servers import ServerGroup

from .helpers import Chosen


@pytest.fixture(scope="session", autouse=True)
def chosen_servers(server_group: ServerGroup | None) -> None:
    Chosen.group = server_group
