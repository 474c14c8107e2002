"""Changes from pages and through the API: what they do, who may make them, and what is written
down."""

import asyncio
import html
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Annotated, Any

import httpx
import pytest

from docket import Docket, Execution, Logged, Perpetual, Worker
from docket.inspection.audit import AuditEntry, read_audit
from docket.web import Role, Visitor, app
from docket.web.actions import ACTIONS
from tests.running import running
from tests.waiting import eventually

from .conftest import Browser


async def ship(order: Annotated[str, Logged], weight: float = 1.0) -> None:
    if weight < 0:
        raise ValueError("it is too light")


@pytest.fixture
async def docket(name: str, url: str) -> AsyncIterator[Docket]:
    """A docket that accepts JSON only, so that letters can be edited in a browser."""
    async with Docket(name=name, url=url, codec="json") as docket:
        docket.register(ship)
        yield docket


async def changed(here: httpx.AsyncClient, segment: str, path: str, **body: Any) -> dict[str, Any]:
    found = await here.post(f"/api/v1/{segment}/{path}", json=body)
    assert found.status_code == 200, found.text
    return found.json()


async def refused(here: httpx.AsyncClient, segment: str, path: str, **body: Any) -> tuple[int, str]:
    found = await here.post(f"/api/v1/{segment}/{path}", json=body)
    assert found.headers["content-type"] == "application/problem+json"
    return found.status_code, found.json()["type"].rpartition(":")[2]


async def last_entry(docket: Docket) -> AuditEntry:
    return (await read_audit(docket, size=1)).entries[0]


async def make_letters(docket: Docket, worker: Worker, number: int) -> None:
    for one in range(number):
        await docket.add(ship, key=f"order-{one}")(f"#{one}", -1.0)
    await worker.run_until_finished()


async def later(docket: Docket, *keys: str) -> None:
    for key in keys:
        await docket.add(ship, docket.now() + timedelta(hours=1), key=key)(key)


async def test_a_task_is_added_with_typed_arguments(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    found = await changed(admin, segment, "tasks/add", function="ship", args=["#1"], kwargs={"weight": 2}, key="one")
    assert found["details"] == {"key": "one", "disposition": "scheduled"}
    execution = await docket.get_execution("one")
    assert execution is not None
    assert (execution.args, execution.kwargs) == (("#1",), {"weight": 2.0})
    again = await changed(admin, segment, "tasks/add", function="ship", args=["#1"], key="one")
    assert again["details"]["disposition"] == "already_scheduled"


async def test_an_add_with_wrong_arguments_adds_nothing(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    assert await refused(admin, segment, "tasks/add", function="ship", kwargs={"wait": 2}) == (400, "bad-request")
    assert await refused(admin, segment, "tasks/add", function="ship", args=[1, "x"]) == (400, "bad-request")
    assert await refused(admin, segment, "tasks/add", function="sink") == (409, "function-unknown")
    assert (await docket.snapshot()).total_tasks == 0


async def test_tasks_are_cancelled_by_their_keys(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "a/b", "..", "c")
    found = await changed(admin, segment, "tasks/cancel", keys=["a/b", "..", "nobody"])
    assert found["details"] == {"cancelled": 2, "asked": 0, "not_found": ["nobody"]}
    assert [execution.key for execution in (await docket.snapshot()).future] == ["c"]
    assert await refused(admin, segment, "tasks/cancel", keys=["nobody"]) == (404, "task-not-found")


async def test_all_tasks_that_match_are_cancelled(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "order-1", "order-2", "bill-1")
    found = await changed(admin, segment, "tasks/cancel-matching", filter="prefix:order-")
    assert found["count"] == 2
    found = await changed(admin, segment, "tasks/cancel-matching", filter="contains:ll function:ship")
    assert found["count"] == 1
    assert (await docket.snapshot()).total_tasks == 0


async def test_two_operators_cancel_the_same_tasks_once(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, *(f"order-{number}" for number in range(300)))
    asked = [changed(admin, segment, "tasks/cancel-matching", filter="prefix:order-") for _ in range(2)]
    found = await asyncio.gather(*asked)
    assert sum(one["details"]["cancelled"] for one in found) == 300
    assert sum(entry.count or 0 for entry in (await read_audit(docket)).entries) == 300
    assert (await docket.snapshot()).future == []


async def test_everything_has_to_be_said(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "order-1")
    for body in ({}, {"filter": " "}, {"everything": False}):
        assert await refused(admin, segment, "tasks/cancel-matching", **body) == (400, "empty-filter")
    assert await refused(admin, segment, "letters/discard") == (400, "empty-filter")
    both = {"filter": "prefix:order", "everything": True}
    assert await refused(admin, segment, "tasks/cancel-matching", **both) == (400, "bad-request")
    assert await refused(admin, segment, "tasks/cancel-matching", filter="state:failed") == (400, "bad-request")
    assert (await docket.snapshot()).total_tasks == 1
    assert (await changed(admin, segment, "tasks/cancel-matching", everything=True))["count"] == 1


async def test_scheduled_tasks_run_now(admin: httpx.AsyncClient, docket: Docket, worker: Worker, segment: str) -> None:
    await later(docket, "one", "two")
    found = await changed(admin, segment, "tasks/run-now", keys=["one", "nobody"])
    assert (found["count"], found["details"]) == (1, {"moved": ["one"]})
    assert await refused(admin, segment, "tasks/run-now", keys=["one"]) == (409, "not-scheduled")
    assert await refused(admin, segment, "tasks/run-now", keys=["nobody"]) == (404, "task-not-found")
    seen = {"keys": ["two"], "due": "2020-01-01T00:00:00Z"}
    assert await refused(admin, segment, "tasks/run-now", **seen) == (409, "not-scheduled")
    assert (await last_entry(docket)).action == "run_now"


async def test_a_task_gets_another_time(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "one")
    await changed(admin, segment, "tasks/reschedule", key="one", when="2040-01-01T00:00:00+00:00")
    execution = await docket.get_execution("one")
    assert execution is not None
    assert execution.when.isoformat() == "2040-01-01T00:00:00+00:00"
    assert await refused(admin, segment, "tasks/reschedule", key="one") == (400, "bad-request")
    assert await refused(admin, segment, "tasks/skip", key="one") == (400, "bad-request")


async def test_a_form_moves_a_task_to_a_time_in_utc(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "one")
    page = (await admin.get(f"/{segment}/schedule")).text
    [due] = re.findall(r'name="due" value="([^"]+)"', page)
    assert re.search(r'type="datetime-local" name="when" step="1" value="\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"', page)

    async def move(when: str, **fields: str) -> str:
        found = await admin.post(f"/{segment}/actions/tasks/reschedule", data={"key": "one", "when": when, **fields})
        assert found.status_code == 303
        return (await admin.get(f"/{segment}/schedule")).text

    assert "is due at 2040-01-01 09:30:00 UTC" in await move("2040-01-01T09:30", due=html.unescape(due))
    # The page was older than the change before.
    assert "its time has changed" in await move("2041-01-01T09:30", due=html.unescape(due))
    assert "is due at 2040-01-01 07:30:00 UTC" in await move("2040-01-01T09:30+02:00")
    assert "it has to be a time" in await move("tomorrow")


async def test_the_next_run_of_a_chain_is_skipped(
    admin: httpx.AsyncClient, docket: Docket, worker: Worker, segment: str
) -> None:
    async def tidy(every: Perpetual = Perpetual(every=timedelta(hours=1), automatic=True)) -> None:
        pass

    docket.register(tidy)
    async with running(worker):
        found = await eventually(lambda: scheduled(docket, "tidy"), "the next run")
        await changed(admin, segment, "tasks/skip", key="tidy")
        skipped = await docket.get_execution("tidy")
    assert skipped is not None
    assert found is not None
    assert skipped.when - found.when >= timedelta(minutes=59)


async def scheduled(docket: Docket, key: str) -> Execution | None:
    """The task, if it waits for a time that has not come."""
    found = await docket.get_execution(key)
    return found if found is not None and found.when > docket.now() else None


async def test_letters_are_retried_and_discarded(
    admin: httpx.AsyncClient, docket: Docket, worker: Worker, segment: str
) -> None:
    await make_letters(docket, worker, 4)
    letters = (await docket.dead.page(size=4)).letters
    found = await changed(admin, segment, "letters/retry", ids=[letters[0].id, letters[1].id, 5])
    assert found["details"]["retried"] == 2
    found = await changed(admin, segment, "letters/retry", function="ship", error="ValueError", most=1)
    assert (found["details"]["retried"], found["details"]["left"]) == (1, 1)
    found = await changed(admin, segment, "letters/discard", everything=True)
    assert found["details"]["discarded"] == 1
    assert await refused(admin, segment, "letters/retry", ids=[5]) == (404, "letter-not-found")
    assert await refused(admin, segment, "letters/retry", ids=[5], function="ship") == (400, "bad-request")


async def test_a_letter_is_edited_and_retried(
    admin: httpx.AsyncClient, docket: Docket, worker: Worker, segment: str
) -> None:
    await make_letters(docket, worker, 1)
    letter = (await docket.dead.page()).letters[0]
    found = await changed(admin, segment, "letters/edit", id=letter.id, arguments={"weight": 3}, retry=True)
    assert "Edited" in found["sentence"]
    await worker.run_until_finished()
    assert await docket.dead.count() == 0
    assert await refused(admin, segment, "letters/edit", id=letter.id, arguments={"weight": 3}) == (
        404,
        "letter-not-found",
    )


async def test_a_letter_is_not_edited_with_arguments_that_do_not_fit(
    admin: httpx.AsyncClient, docket: Docket, worker: Worker, segment: str
) -> None:
    await make_letters(docket, worker, 1)
    letter = (await docket.dead.page()).letters[0]
    for arguments in ({"weight": "heavy"}, {"nothing": 1}, {}):
        status, _ = await refused(admin, segment, "letters/edit", id=letter.id, arguments=arguments)
        assert status == 400
    assert (await docket.dead.page()).letters[0].edits == 0


async def test_pickled_letters_are_not_edited(name: str, url: str, browser: Browser) -> None:
    async with Docket(name, url, codec="json", accept=["pickle"]) as docket:
        here = browser(app(docket, guard=None))
        assert await refused(here, name, "letters/edit", id=1, arguments={"weight": 3}) == (409, "pickled")


async def test_functions_are_paused_and_resumed(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await changed(admin, segment, "pauses/add", function="ship", parameter="weight", operator=">", value=2.5)
    await changed(admin, segment, "pauses/add", function="*", parameter="order", typed="int:5")
    await changed(admin, segment, "pauses/add", function="ship", parameter="weight", operator="between", value=[1, 5])
    first, second, third = await docket.pauses()
    assert (first.value, second.value, third.value) == (2.5, 5, (1, 5))
    await changed(admin, segment, "pauses/resume", id=first.id)
    await changed(admin, segment, "pauses/resume", parameter="order", value=5)
    assert [pause.id for pause in await docket.pauses() if not pause.is_resuming] == [third.id]
    assert await refused(admin, segment, "pauses/resume", id="nothing") == (404, "not-paused")
    assert await refused(admin, segment, "pauses/resume") == (400, "bad-request")
    for body in ({"parameter": "x"}, {"value": 5}, {"parameter": "x", "value": 1, "typed": "1"}):
        assert await refused(admin, segment, "pauses/add", **body) == (400, "bad-request")


async def test_functions_are_struck_and_restored(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await changed(admin, segment, "strikes/add", function="ship", parameter="order", value="#1")
    await changed(admin, segment, "strikes/add", function="sink")
    by_text = {strike.call_repr(): id for id, strike in docket.strike_list.by_id.items()}
    assert set(by_text) == {"ship(order == '#1')", "sink(...)"}
    await changed(admin, segment, "strikes/restore", id=by_text["sink(...)"])
    await changed(admin, segment, "strikes/restore", function="ship", parameter="order", value="#1")
    assert docket.strike_list.in_effect == []
    assert await refused(admin, segment, "strikes/restore", id="nothing") == (404, "strike-not-found")
    assert await refused(admin, segment, "strikes/add") == (400, "bad-request")
    assert await refused(admin, segment, "pauses/add") == (400, "bad-request")
    assert await refused(admin, segment, "pauses/add", parameter="order", value=5) == (400, "bad-request")


@pytest.mark.parametrize("path", ACTIONS)
async def test_every_change_asks_for_the_role_that_it_needs(
    docket: Docket, browser: Browser, segment: str, path: str
) -> None:
    needed = ACTIONS[path].role
    for role in Role:
        here = browser(app(docket, guard=lambda request, role=role: role))
        api = await here.post(f"/api/v1/{segment}/{path}", json={})
        form = await here.post(f"/{segment}/actions/{path}", data={"return_to": f"/{segment}/now"})
        if role.includes(needed):
            assert api.status_code != 403
            assert form.status_code != 403
        else:
            assert api.status_code == form.status_code == 403
            assert api.json()["type"] == "urn:docket:problem:role"
    assert needed is not Role.VIEWER


async def test_a_change_is_written_down_with_who_made_it(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: Visitor(Role.ADMIN, "anna")))
    await changed(here, segment, "pauses/add", function="ship")
    entry = await last_entry(docket)
    assert (entry.who, entry.via, entry.action, entry.about) == ("anna", "api", "pause", "function=ship")
    assert entry.outcome == "done"


async def test_a_change_that_failed_is_written_down_too(docket: Docket, browser: Browser, segment: str) -> None:
    here = browser(app(docket, guard=lambda request: Visitor(Role.ADMIN, "anna")))
    await refused(here, segment, "tasks/cancel", keys=["nobody"])
    entry = await last_entry(docket)
    assert (entry.who, entry.action) == ("anna", "cancel")
    assert entry.outcome.startswith("TaskNotFound")


async def test_arguments_do_not_reach_the_audit(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await changed(admin, segment, "tasks/add", function="ship", args=["card-4711"])
    assert "4711" not in (await last_entry(docket)).about


async def test_a_form_leads_back_with_a_message_that_is_shown_once(
    admin: httpx.AsyncClient, docket: Docket, segment: str
) -> None:
    form = {"function": "ship", "parameter": "", "typed": "", "return_to": f"/{segment}/now?x=1"}
    found = await admin.post(f"/{segment}/actions/pauses/add", data=form)
    assert found.status_code == 303
    assert found.headers["location"] == f"/{segment}/now?x=1"
    assert "Paused ship(...)." in (await admin.get(f"/{segment}/now")).text
    assert "Paused ship(...)." not in (await admin.get(f"/{segment}/now")).text
    entry = await last_entry(docket)
    assert entry.via == "web"


async def test_a_form_with_a_mistake_leads_back_with_the_mistake(admin: httpx.AsyncClient, segment: str) -> None:
    form = {"parameter": "order", "return_to": f"/{segment}/now"}
    found = await admin.post(f"/{segment}/actions/pauses/add", data=form)
    assert found.status_code == 303
    assert "needs either a value or a typed text" in (await admin.get(f"/{segment}/now")).text


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/other/now", "javascript:alert(1)", ""],
)
async def test_a_form_leads_nowhere_else(admin: httpx.AsyncClient, segment: str, elsewhere: str) -> None:
    form = {"function": "ship", "return_to": elsewhere}
    found = await admin.post(f"/{segment}/actions/pauses/add", data=form)
    assert found.headers["location"] == f"/{segment}/now"


async def test_several_fields_of_one_name_are_a_list(admin: httpx.AsyncClient, docket: Docket, segment: str) -> None:
    await later(docket, "one", "two", "three")
    await admin.post(f"/{segment}/actions/tasks/cancel", data={"keys": ["one", "two"]})
    assert [execution.key for execution in (await docket.snapshot()).future] == ["three"]


async def test_keys_in_forms_are_encoded_since_browsers_change_line_breaks(
    admin: httpx.AsyncClient, docket: Docket, segment: str
) -> None:
    await later(docket, "one\ntwo%", "three")
    await admin.post(f"/{segment}/actions/tasks/cancel", data={"keys": ["one%0Atwo%25"]})
    assert [execution.key for execution in (await docket.snapshot()).future] == ["three"]


async def test_bodies_of_other_types_and_sizes_are_refused(admin: httpx.AsyncClient, segment: str) -> None:
    address = f"/api/v1/{segment}/pauses/add"
    json = {"content-type": "application/json"}
    for content, headers, status in (
        (b"function=ship", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b'{"function": "ship"}', {"content-type": "text/plain"}, 415),
        (b"{", json, 400),
        (b"[" * 100_000, json, 400),
        (b'{"function": NaN}', json, 400),
        (b'{"function": "ship"}' + b" " * 2_000_000, json, 413),
        (b"[]", json, 400),
        (b'{"nothing": 1}', json, 400),
    ):
        found = await admin.post(address, content=content, headers=headers)
        assert found.status_code == status
    assert (await admin.post(f"/{segment}/actions/pauses/add", json={"function": "ship"})).status_code == 415
