"""With signing on, only holders of a key can strike."""

from __future__ import annotations

from typing import Any

import pytest

from docket import Disposition, Docket, Keyring

KEYS = Keyring({"a": b"k" * 32})


async def send(customer: str) -> None: ...


async def forged_rules(name: str, url: str) -> dict[Any, Any]:
    """The strikes of others: without a key, with another key of the same id, of another docket."""
    rules: dict[Any, Any] = {}
    others: list[tuple[str, Any]] = [(name, None), (name, Keyring({"a": b"x" * 32})), (f"{name}-other", KEYS)]
    for number, (other, keys) in enumerate(others):
        async with Docket(other, url, signing=keys) as docket:
            await docket.strike(send, "customer", "==", "ann")
            stored = await docket.server.client.hgetall(docket.strike_list.strike_key)
            # The field of a rule is a hash; another field has the version.
            [rules[f"forged {number}"]] = [rule for id, rule in stored.items() if len(id) == 40]
            await docket.restore(send, "customer", "==", "ann")
    return rules


@pytest.mark.parametrize("encrypt", [False, True])
async def test_a_strike_without_a_valid_tag_is_not_applied(name: str, url: str, encrypt: bool) -> None:
    rules = await forged_rules(name, url)
    async with Docket(name, url, signing=KEYS, encrypt=encrypt) as docket:
        await docket.strike(send, "customer", "==", "bob")
        await docket.server.client.hset(docket.strike_list.strike_key, mapping=rules)
        async with Docket(name, url, signing=KEYS) as late:
            assert set(late.strike_list.unreadable) == {"forged 0", "forged 1", "forged 2"}
            assert (await late.add(send)("ann")).disposition is Disposition.SCHEDULED
            assert (await late.add(send)("bob")).disposition is Disposition.STRUCK


async def test_a_docket_that_accepts_unsigned_payloads_applies_unsigned_strikes(name: str, url: str) -> None:
    async with Docket(name, url) as plain, Docket(name, url, signing=KEYS, accept={"unsigned"}) as docket:
        await plain.strike(send, "customer", "==", "ann")
        await docket.wait_for_strikes_loaded()
        async with Docket(name, url, signing=KEYS, accept={"unsigned"}) as late:
            assert (await late.add(send)("ann")).disposition is Disposition.STRUCK


async def test_a_struck_value_of_an_encrypted_docket_is_not_readable(name: str, url: str) -> None:
    async with Docket(name, url, signing=KEYS, encrypt=True) as docket:
        await docket.strike(send, "customer", "==", "swordfish")
        stored = await docket.server.client.hgetall(docket.strike_list.strike_key)
        assert stored
        assert "swordfish" not in repr(stored)
