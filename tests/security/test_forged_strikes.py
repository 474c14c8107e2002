"""Strikes: every process of a docket reads every strike, so none of them may be able to do harm."""

import logging
from typing import Any

import pytest

from docket import Disposition, Docket, TooLong
from docket.codec.packing import pack
from tests.running import worker_at_work
from tests.waiting import eventually

from .traps import Trap


async def send(customer: str) -> None: ...


async def refund(customer: str) -> None: ...


def rule(value: bytes, version: int = 2) -> bytes:
    return pack((version, b"send", b"customer", "==", value, "'ann'"))


@pytest.mark.parametrize("version", [1, 2])
async def test_a_pickled_strike_is_not_decoded(
    docket: Docket, trap: Trap, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    await docket.strike(refund)
    await docket.server.client.hset(
        docket.strike_list.strike_key, "forged", rule(b"\x01\x01\x00" + trap.pickled, version)
    )

    with caplog.at_level(logging.ERROR):
        async with Docket(docket.name, docket.url) as late:
            assert list(late.strike_list.unreadable) == ["forged"]
            assert [strike.function for strike in late.strike_list.in_effect] == ["refund"]
            assert (await late.add(send)("ann")).disposition is Disposition.SCHEDULED

            assert await late.strike_list.discard("forged")
            assert not late.strike_list.unreadable
    assert not trap.sprang
    assert caplog.text.count("cannot be applied here") == 1


ODD_FIELDS = {
    b"\xff\xfe": b"\xff",
    b"": b"",
    b"list": pack([]),
    b"number": pack(5),
    b"huge": b"\x00" * 100_000,
    b"nested": rule(b"\x01\x03\x00" + b"\x92\xa4list\x91" * 200 + b"\x01"),
    b"unknown tag": rule(b"\x01\x03\x00" + pack(["os.system", "true"])),
    b"unhashable": rule(b"\x01\x03\x00" + pack(["set", [["list", []]]])),
    b"bad date": rule(b"\x01\x03\x00" + pack(["date", "yesterday"])),
    b"bad decimal": rule(b"\x01\x03\x00" + pack(["decimal", "x"])),
    b"extension": rule(b"\x01\x03\x00\xd6\xff\x00\x00\x00\x00"),
    b"nobody": pack((2, None, None, "==", b"", "")),
    b"no pair": pack((2, b"send", b"customer", "between", b"\x01\x03\x00\x05", "5")),
    b"names": pack((2, 7, [], "==", b"", "")),
    b"operator": pack((2, b"send", b"customer", 5, b"\x01\x03\x00\x05", "5")),
}


@pytest.mark.parametrize("version", [b"17", b"never", b"9" * 400])
async def test_odd_strikes_stop_nobody_and_can_be_removed(
    docket: Docket, version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await docket.strike(refund)
    await docket.server.client.hset(docket.strike_list.strike_key, mapping={**ODD_FIELDS, b"version": version})

    async with Docket(docket.name, docket.url) as late, worker_at_work(late):
        strikes = late.strike_list
        assert len(strikes.unreadable) == len(ODD_FIELDS)
        assert caplog.text.count("cannot be applied here") == 1
        await late.strike(send, "customer", "==", "bob")
        assert (await late.add(send)("bob")).disposition is Disposition.STRUCK
        await (await late.add(send)("ann")).get_result()

        for id in strikes.unreadable:
            await strikes.discard(id)
        assert not strikes.unreadable
        assert {strike.function for strike in strikes.in_effect} == {"refund", "send"}
    async with Docket(docket.name, docket.url) as last:
        assert not last.strike_list.unreadable


async def test_a_key_of_another_kind_stops_nobody(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    await docket.server.client.set(docket.strike_list.strike_key, "not a hash")

    async with Docket(docket.name, docket.url) as late, worker_at_work(late):
        await (await late.add(send)("ann")).get_result()
    assert "holds something else" in caplog.text


async def test_a_value_that_is_too_long_is_refused(docket: Docket) -> None:
    with pytest.raises(TooLong, match="4,096"):
        await docket.strike(send, "customer", "==", "x" * 5_000)

    assert docket.strike_list.is_empty


async def test_a_published_strike_is_ignored(docket: Docket, publisher: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The publisher knows the format of the message and of the rule, but not the secret."""
    changes = pack([[b"forged", rule(b"\x01\x03\x00\xa3ann")]])
    async with worker_at_work(docket):
        for proof in (b"", b"S" + b"0" * 40, b"S" + b" " * 40, b"S"):
            await publisher.publish(docket.keys.strike_channel, proof + b"9999999999999999 " + changes)
        await publisher.publish(docket.keys.strike_channel, b"\xff" * 100)
        await eventually(lambda: "were ignored" in caplog.text, "the docket logs that it ignored a message")

        # A genuine strike comes after all of them, on the same channel.
        async with Docket(docket.name, docket.url) as other:
            await other.strike(refund)
        await eventually(lambda: docket.strike_list.is_stricken("refund"), "the genuine strike is applied")
        assert [strike.function for strike in docket.strike_list.in_effect] == ["refund"]
        assert (await docket.add(send)("ann")).disposition is Disposition.SCHEDULED
    assert caplog.text.count("were ignored") == 1


async def test_a_lost_or_replaced_secret_loses_no_strike(docket: Docket) -> None:
    """The process follows with the secret of its start. Messages with another one make it read the
    rules again."""
    async with Docket(docket.name, docket.url) as other:
        for secret in (None, b"f" * 128, b"odd"):
            if secret is None:
                await docket.server.client.delete(docket.key("secret"))
            else:
                await docket.server.client.set(docket.key("secret"), secret)
            await other.strike(send)
            await eventually(lambda: docket.strike_list.is_stricken("send"), "the strike is applied")
            await other.restore(send)
            await eventually(lambda: not docket.strike_list.is_stricken("send"), "the strike is lifted")
