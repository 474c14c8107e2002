"""What the URL of a server says."""

from __future__ import annotations

import pytest

from docket.errors import UnknownScheme
from docket.storage.client.urls import ServerKind, parse


@pytest.mark.parametrize(
    "url",
    [
        "rediss://host",
        "valkeys://host",
        "rediss+cluster://host",
        "valkeys+cluster://host",
        "rediss+sentinel://host/main",
        "valkeys+sentinel://host/main",
    ],
)
def test_tls_checks_the_name_of_the_host_unless_the_url_says_otherwise(url: str) -> None:
    assert parse(url).tls
    assert parse(url).options["ssl_check_hostname"] is True
    assert parse(f"{url}?ssl_check_hostname=false").options["ssl_check_hostname"] is False
    assert parse(f"{url}?ssl_cert_reqs=none").options["ssl_check_hostname"] is False


@pytest.mark.parametrize(
    "url",
    ["redis://host", "valkey://host", "redis+cluster://host", "valkey+cluster://host", "valkey+sentinel://host/m"],
)
def test_without_tls_there_is_nothing_to_verify(url: str) -> None:
    assert not parse(url).tls
    assert not [name for name in parse(url).options if name.startswith("ssl_")]


def test_options_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(UnknownScheme, match="cannot be checked with ssl_cert_reqs=none"):
        parse("rediss://host?ssl_cert_reqs=none&ssl_check_hostname=true")


@pytest.mark.parametrize("scheme", ["redis", "valkey", "rediss", "valkeys"])
def test_a_sentinel_url_has_the_login_of_the_servers_and_of_the_sentinels(scheme: str) -> None:
    options = "sentinel_username=watch&sentinel_password=s2"
    address = parse(f"{scheme}+sentinel://shop:s1@one:1,two/main/3?{options}")
    assert address.kind is ServerKind.SENTINEL
    assert address.sentinels == (("one", 1), ("two", 26379))
    assert (address.service, address.database) == ("main", 3)
    assert (address.options["username"], address.options["password"]) == ("shop", "s1")
    assert address.sentinel_options == {"username": "watch", "password": "s2"}
