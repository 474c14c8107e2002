"""Work that falls due wakes the worker, whatever happens at the same time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from docket import Docket, Worker
from docket.ledger import Staged
from docket.ledger.tasks import Tasks
from docket.worker.fleet import stager
from tests.waiting import SECONDS, ends


async def test_a_task_that_is_added_while_the_server_is_asked_what_is_due_is_not_overlooked(
    docket: Docket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The news of it may be here before the answer, which does not know of it yet."""
    ran: list[str] = []
    heard = asyncio.Event()
    stage = Tasks.stage

    async def note(name: str) -> None:
        ran.append(name)

    def soon() -> datetime:
        return docket.now() + timedelta(milliseconds=200)

    async def slowly_answered(tasks: Tasks, *args: Any, **options: Any) -> Staged:
        answer = await stage(tasks, *args, **options)
        if answer[0] and not heard.is_set():
            await docket.add(note, when=soon())("second")
            await asyncio.wait_for(heard.wait(), SECONDS)
        return answer

    monkeypatch.setattr(Tasks, "stage", slowly_answered)
    # Only a wake can help: the backstop would come too late for the test.
    monkeypatch.setattr(stager, "LONGEST_SLEEP", 3600.0)
    await docket.add(note, when=soon())("first")
    # One subscription serves both: when we hear of it, so does the worker.
    await docket.subscriptions.listen(docket.keys.wake_channel, lambda _: heard.set())
    async with Worker(docket) as worker:
        await ends(worker.run_until_finished())
    assert ran == ["first", "second"]
