"""Every change, by the buttons of the pages."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import pytest
from playwright.async_api import Browser

from docket import Cron, Docket, ExecutionState, Logged
from docket.web import app
from tests.running import at_work, run_everything, worker_for
from tests.waiting import eventually

from .tabs import Tab, opened, served

LATER = timedelta(hours=2)


async def deliver(order: Annotated[str, Logged]) -> None:
    if order.startswith("bad"):
        raise RuntimeError(f"order {order} cannot be found")


async def add_later(docket: Docket, *keys: str) -> None:
    for key in keys:
        await docket.add(deliver, when=datetime.now(UTC) + LATER, key=key)("good")


async def add_letters(docket: Docket, *keys: str) -> None:
    for key in keys:
        await docket.add(deliver, key=key)("bad one")
    await run_everything(docket)
    assert await docket.dead.count() == len(keys)


async def unfinished(docket: Docket) -> set[str]:
    return {execution.key for execution in (await docket.snapshot()).future}


async def test_a_task_is_cancelled(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one", "two")
    await tab.page_request("/task?key=one")
    await tab.act("Cancel")
    assert "Cancelled 1 waiting task" in await tab.said()
    assert await unfinished(docket) == {"two"}
    await tab.sees("cancelled")


async def test_selected_tasks_are_cancelled(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one", "two", "a\nkey <b>", "100%25")
    await tab.page_request("/tasks")
    for key in ("one", "a\\nkey <b>", "100%25"):
        await tab.page.get_by_label(f"Select {key}", exact=True).check()
    await tab.act("Cancel selected")
    assert "Cancelled 3 waiting tasks" in await tab.said()
    assert await unfinished(docket) == {"two"}


async def test_all_tasks_that_match_are_cancelled(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "order-1", "order-2", "other")
    await tab.page_request("/tasks")
    await tab.page.fill(".filter input", "prefix:order-")
    await tab.page.press(".filter input", "Enter")
    await tab.act("Cancel all that match")
    assert "Cancelled 2 waiting tasks" in await tab.said()
    assert await unfinished(docket) == {"other"}


async def test_a_letter_is_retried(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one", "two")
    await tab.page_request("/task?key=one")
    await tab.act("Retry")
    assert "Retried 1 dead letter" in await tab.said()
    assert await unfinished(docket) == {"one"}
    assert await docket.dead.count() == 1


async def test_all_letters_of_a_kind_are_retried(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one", "two", "three")
    await tab.page_request("/dead")
    await tab.page.get_by_role("link", name="RuntimeError").click()
    await tab.page.fill("[name=most]", "2")
    await tab.act("Retry all 3")
    assert "Retried 2 dead letters" in await tab.said()
    await tab.act("Retry")
    assert "Retried 1 dead letter" in await tab.said()
    assert await docket.dead.count() == 0


async def test_selected_letters_are_discarded(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one", "two", "three")
    await tab.page_request("/dead?function=deliver")
    letter = await docket.dead.get("two")
    assert letter is not None
    await tab.page.get_by_label(f"Select letter {letter.id}", exact=True).check()
    await tab.act("Discard selected")
    assert "Discarded 1 dead letter" in await tab.said()
    assert await docket.dead.get("two") is None
    assert await docket.dead.count() == 2


async def test_all_letters_are_discarded(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one", "two")
    await tab.page_request("/dead")
    await tab.act("Discard all")
    await tab.sees("No task has failed for good")
    assert await docket.dead.count() == 0


async def test_the_arguments_of_a_letter_are_corrected(name: str, url: str, chromium: Browser) -> None:
    """On a docket that accepts JSON only: the dashboard never unpickles."""
    async with Docket(name, url, codec="json", accept=["json"]) as docket:
        docket.register(deliver)
        await add_letters(docket, "one")
        letter = await docket.dead.get("one")
        assert letter is not None
        async with served(app(docket, guard=None)) as root, opened(chromium, f"{root}/{docket.name}") as tab:
            await tab.page_request(f"/letter?id={letter.id}")
            await tab.page.fill("[name=arguments]", '{"order": "good"}')
            await tab.page.check("[name=retry]")
            await tab.act("Save")
            assert "Edited dead letter" in await tab.said()
        await run_everything(docket)
        execution = await docket.get_execution("one")
        assert execution is not None
        assert execution.state is ExecutionState.COMPLETED


async def test_a_letter_shows_its_logged_arguments(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one")
    await tab.page_request("/dead?function=deliver")
    await tab.sees("order='bad one'")


async def test_a_docket_with_pickled_arguments_says_where_to_correct_them(docket: Docket, tab: Tab) -> None:
    await add_letters(docket, "one")
    letter = await docket.dead.get("one")
    assert letter is not None
    await tab.page_request(f"/letter?id={letter.id}")
    await tab.sees(f"docket dead edit {letter.id}")
    assert await tab.page.locator("[name=arguments]").count() == 0


async def test_a_function_is_paused_and_resumed(docket: Docket, tab: Tab) -> None:
    await tab.page_request("/rules")
    await tab.page.fill("form.rule >> nth=0 >> [name=function]", "deliver")
    await tab.act("Pause")
    assert "Paused" in await tab.said()
    assert [pause.function for pause in await docket.pauses()] == ["deliver"]
    await tab.act("Resume")
    assert "Resumed" in await tab.said()
    assert await docket.pauses() == []


async def test_tasks_with_an_argument_are_paused(docket: Docket, tab: Tab) -> None:
    await tab.page_request("/rules")
    form = "form.rule >> nth=0 >> "
    await tab.page.fill(f"{form}[name=function]", "deliver")
    await tab.page.fill(f"{form}[name=parameter]", "customer")
    await tab.page.fill(f"{form}[name=typed]", "int:7")
    await tab.act("Pause")
    assert [(pause.parameter, pause.value) for pause in await docket.pauses()] == [("customer", 7)]


async def test_a_strike_is_made_and_restored(docket: Docket, tab: Tab) -> None:
    await tab.page_request("/rules")
    form = "form.rule >> nth=1 >> "
    await tab.page.fill(f"{form}[name=parameter]", "customer")
    await tab.page.fill(f"{form}[name=typed]", "acme")
    await tab.act("Strike")
    assert "Struck" in await tab.said()
    assert [strike.value for strike in docket.strike_list.in_effect] == ["acme"]
    await tab.page_request("/rules")
    await tab.act("Restore")
    assert "Restored" in await tab.said()
    await eventually(lambda: not docket.strike_list.in_effect, "the strike is lifted")


async def test_a_scheduled_task_runs_now(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one", "two")
    await tab.page_request("/task?key=one")
    await tab.act("Run now")
    await run_until_ended(docket, "one")
    assert await unfinished(docket) == {"two"}


async def test_a_scheduled_task_gets_another_time_in_utc(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one")
    await tab.page_request("/schedule")
    await tab.page.locator("#scheduled").get_by_role("button", name="Another time").click()
    asked = tab.page.locator(".ask:popover-open")
    assert "UTC" in await asked.inner_text()
    await asked.locator("input[name=when]").fill("2040-01-31T09:30:00")
    await asked.get_by_role("button", name="Move").click()
    await tab.page.wait_for_load_state()
    assert "is due at 2040-01-31 09:30:00 UTC" in await tab.said()
    moved = await docket.get_execution("one")
    assert moved is not None
    assert moved.when == datetime(2040, 1, 31, 9, 30, tzinfo=UTC)


async def test_the_next_run_of_a_chain_is_skipped(docket: Docket, tab: Tab) -> None:
    docket.register(nightly)
    async with worker_for(docket) as worker, at_work(worker):
        await eventually(lambda: docket.get_execution("nightly"), "the chain has begun")
        before = await docket.get_execution("nightly")
        assert before is not None
        await tab.page_request("/schedule")
        await tab.act("Skip one", "#chains")
        after = await docket.get_execution("nightly")
        assert after is not None
        assert after.when - before.when == timedelta(days=1)


async def run_until_ended(docket: Docket, key: str) -> None:
    async with worker_for(docket) as worker, at_work(worker):
        execution = await docket.get_execution(key)
        assert execution is not None
        await execution.get_result()


async def nightly(at: Cron = Cron("0 2 * * *")) -> None: ...


async def test_a_change_that_is_not_possible_says_why(docket: Docket, chromium: Browser, dashboard: str) -> None:
    # Without JavaScript the page still shows the button when the task has ended.
    async with opened(chromium, dashboard, java_script_enabled=False) as tab:
        await add_later(docket, "one")
        await tab.page_request("/task?key=one")
        await docket.cancel("one")
        await tab.act("Cancel")
        assert "no unfinished task" in await tab.said()


async def test_every_change_is_in_the_audit(docket: Docket, tab: Tab) -> None:
    await add_later(docket, "one")
    await tab.page_request("/task?key=one")
    await tab.act("Cancel")
    await tab.page_request("/audit")
    row = tab.page.locator("tbody tr").first
    assert "cancel" in await row.inner_text()
    assert "one" in await row.inner_text()
    assert "done" in await row.inner_text()


@pytest.mark.parametrize("path", ["/now", "/tasks", "/dead", "/schedule", "/rules", "/task?key=one"])
async def test_a_viewer_sees_no_buttons(docket: Docket, chromium: Browser, path: str) -> None:
    await add_later(docket, "one")
    await docket.pause("deliver")
    async with served(app(docket, guard=lambda _: "viewer")) as root, opened(chromium, f"{root}/{docket.name}") as tab:
        assert await tab.page_request(path) == 200
        assert await tab.page.locator("form[method=post]").count() == 0
        await tab.sees("read-only", ".top")


async def test_an_operator_sees_no_button_of_an_admin(docket: Docket, chromium: Browser) -> None:
    await add_letters(docket, "one")
    async with (
        served(app(docket, guard=lambda _: "operator")) as root,
        opened(chromium, f"{root}/{docket.name}") as tab,
    ):
        await tab.page_request("/dead")
        assert await tab.page.get_by_role("button", name="Retry", exact=True).count() == 1
        assert await tab.page.get_by_role("button", name="Discard").count() == 0


async def test_a_stranger_sees_a_page_that_says_so(docket: Docket, chromium: Browser) -> None:
    async with served(app(docket, guard=lambda _: None)) as root, opened(chromium, f"{root}/{docket.name}") as tab:
        assert await tab.page_request("/now") == 403
        assert "You may not look at this" in await tab.text("body")
