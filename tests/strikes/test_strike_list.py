"""The strike list alone, without a docket."""

import logging
from typing import Any

import pytest

from docket import Docket, Execution, StrikeList
from docket.strikelist import Operator, Restore, Strike
from tests.nodes import on_every_node
from tests.waiting import eventually


async def send(customer: str) -> None: ...


async def test_a_list_of_this_process_alone_needs_no_server() -> None:
    strikes = StrikeList()
    async with strikes:
        await strikes.strike("send")
        await strikes.strike(parameter="customer", operator="==", value="ann")

        assert strikes.is_stricken("send")
        assert not strikes.is_stricken("refund")
        assert strikes.is_stricken({"customer": "ann", "amount": 5})
        assert not strikes.is_stricken({"customer": "bob"})

        await strikes.restore("send")
        await strikes.restore(parameter="customer", operator="==", value="ann")
        assert not strikes.is_stricken("send")
        assert strikes.is_empty


def test_instructions_are_applied_without_a_loop() -> None:
    strikes = StrikeList()
    strikes.update(Strike("send", None, Operator.EQUAL, None))
    strikes.update(Strike(None, "amount", Operator.GREATER_THAN, 100))
    strikes.update(Strike(None, None, Operator.EQUAL, None))

    assert strikes.is_stricken("send")
    assert strikes.is_stricken({"amount": 101})

    strikes.update(Restore("send", None, Operator.EQUAL, None))
    strikes.update(Restore(None, "amount", Operator.GREATER_THAN, 100))
    assert strikes.is_empty


def test_values_by_parameter_do_not_match_strikes_on_one_function() -> None:
    strikes = StrikeList()
    strikes.update(Strike("send", "customer", Operator.EQUAL, "ann"))

    assert not strikes.is_stricken({"customer": "ann"})
    assert not strikes.is_stricken("send")


async def test_a_list_follows_the_docket_of_its_name(docket: Docket) -> None:
    await docket.strike(send)
    strikes = StrikeList(docket.url, docket.name)
    await strikes.connect()
    try:
        await strikes.wait_for_strikes_loaded()
        assert strikes.is_stricken("send")

        await strikes.strike(parameter="customer", value="ann")
        await eventually(lambda: docket.strike_list.is_stricken({"customer": "ann"}), "the docket knows of the strike")
        await docket.restore(send)
        await eventually(lambda: not strikes.is_stricken("send"), "the list knows that the strike is over")
    finally:
        await strikes.close()
    assert docket.strike_list.is_stricken({"customer": "ann"})


async def test_a_list_may_be_opened_again(docket: Docket) -> None:
    strikes = StrikeList(docket.url, docket.name)
    for _ in range(2):
        async with strikes:
            await strikes.strike("send")
        assert strikes.is_empty
    async with strikes:
        assert strikes.is_stricken("send")


async def test_instructions_can_be_sent(docket: Docket) -> None:
    async with StrikeList(docket.url, docket.name) as strikes:
        await strikes.send_instruction(Strike("send", "customer", Operator.EQUAL, "ann"))
        await eventually(lambda: not docket.strike_list.is_empty, "the docket knows of the strike")
        await strikes.send_instruction(Restore("send", "customer", Operator.EQUAL, "ann"))
        await eventually(lambda: docket.strike_list.is_empty, "the docket knows that the strike is over")


async def test_a_load_that_fails_is_repeated_until_it_succeeds(
    docket: Docket, caplog: pytest.LogCaptureFixture
) -> None:
    await docket.strike(send)
    strikes = StrikeList(docket.url, docket.name)
    try:
        # Longer than a client waits for an answer.
        await on_every_node(docket, "CLIENT", "PAUSE", "6000", "ALL")
        await strikes.follow(docket.server, docket.subscriptions, docket.keys)
        assert "cannot be loaded" in caplog.text
        assert strikes.is_empty

        await strikes.wait_for_strikes_loaded()
        assert strikes.is_stricken("send")
    finally:
        await strikes.close()


async def test_a_list_that_is_not_connected_says_so(docket_url: str) -> None:
    with pytest.raises(RuntimeError, match="not connected"):
        await StrikeList(docket_url, "test").strike("send")


async def test_conditions_of_ones_own_block_tasks_in_this_process(docket: Docket) -> None:
    def is_for_ann(execution: Execution) -> bool:
        return execution.get_argument("customer") == "ann"

    docket.strike_list.add_condition(is_for_ann)
    assert (await docket.add(send)("ann")).disposition.value == "struck"
    assert (await docket.add(send)("bob")).disposition.value == "scheduled"

    docket.strike_list.remove_condition(is_for_ann)
    assert (await docket.add(send)("ann")).disposition.value == "scheduled"
    assert docket.strike_list.is_empty


async def test_a_condition_that_fails_blocks_nothing(docket: Docket, caplog: pytest.LogCaptureFixture) -> None:
    def broken(execution: Execution) -> bool:
        raise LookupError("broken")

    docket.strike_list.add_condition(broken)
    with caplog.at_level(logging.ERROR, logger="docket.strikelist"):
        assert (await docket.add(send)("ann")).disposition.value == "scheduled"
    assert "broken" in caplog.text


@pytest.mark.parametrize(
    ("instruction", "shown"),
    [
        (Strike("send"), "send(...)"),
        (Strike("send", "amount", Operator.GREATER_THAN, 5), "send(amount > 5)"),
        (Restore(None, "amount", Operator.BETWEEN, (1, 5)), "*(amount between (1, 5))"),
    ],
)
def test_instructions_show_what_they_are_about(instruction: Any, shown: str) -> None:
    assert instruction.call_repr() == shown


def test_instructions_have_a_direction() -> None:
    assert (Strike("send").direction, Restore("send").direction) == ("strike", "restore")
