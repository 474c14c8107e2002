"""Changes of dead letters: retry, discard, edit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from docket.dead import DeadLetters, Letter, Report
from docket.errors import LetterNotFound
from docket.web.guards import Role
from docket.web.inputs import Input, keys, moment, text, whole, wholes
from docket.web.problems import Refused

from .action import Action, ActionResult, ChangeRequest, report_in_words
from .fields import fields
from .values import typed_arguments

FILTER: tuple[Input, ...] = (
    text("function", "The name of the function."),
    text("error", "The class of the error, with or without its module."),
    text("kind", "The id of a kind of letters."),
    text("text", "A part of the error's text or of its traceback."),
    keys(text("key", "The key of the task.")),
    text("key_prefix", "The beginning of the key."),
    moment("since", "Letters of tasks that failed at this time or later."),
    moment("until", "Letters of tasks that failed before this time."),
)
_BATCH: tuple[Input, ...] = (
    wholes("ids", "The ids of letters. No other filter goes with them."),
    *FILTER,
    *fields(
        DeadLetters.retry,
        everything="All letters: has to be said if there is no filter.",
        most=whole("most", "At most so many letters, the oldest first.", least=1),
        mark="Only letters up to this id, such as the newest one that you have seen.",
    ),
)


async def retry(
    request: ChangeRequest, *, over: timedelta | None = None, ids: list[int] | None = None, **given: Any
) -> ActionResult:
    async def one(**filter: Any) -> Report:
        return await request.docket.dead.retry(over=over, **filter)

    report = await _batch(request, one, ids, given)
    number = report.retried + report.chains
    return ActionResult(
        sentence=report_in_words("Retried", report.retried, report), count=number, details=report.as_json()
    )


async def discard(request: ChangeRequest, *, ids: list[int] | None = None, **given: Any) -> ActionResult:
    report = await _batch(request, request.docket.dead.discard, ids, given)
    sentence = report_in_words("Discarded", report.discarded, report)
    return ActionResult(sentence=sentence, count=report.discarded, details=report.as_json())


async def _batch(
    request: ChangeRequest, act: Callable[..., Awaitable[Report]], ids: list[int] | None, given: dict[str, Any]
) -> Report:
    if ids is None:
        return await act(progress=request.job.show, **given)
    if given:
        raise ValueError(f"ids name the letters, so {', '.join(given)} cannot go with them")
    total = Report(await request.docket.dead.mark())
    for number, id in enumerate(dict.fromkeys(ids), 1):
        total.add(await act(id=id))
        request.job.show(number, len(ids))
    if not total.matched:
        raise LetterNotFound(f"there is no dead letter {', '.join(map(str, ids[:5]))}")
    return total


async def edit(request: ChangeRequest, *, id: int, arguments: dict[str, Any], retry: bool = False) -> ActionResult:
    """Opening the arguments of a pickled letter could run any code here, so only dockets that
    accept nothing but JSON are edited in a browser."""
    docket = request.docket
    if docket.payloads.may_run_code:
        raise Refused(
            409,
            "pickled",
            "This docket accepts pickled arguments",
            "The dashboard never unpickles. Edit the letter with docket dead edit, or in Python.",
        )
    letter: Letter | None = await docket.dead.get(id)
    if letter is None:
        raise LetterNotFound(f"there is no dead letter {id}")
    changes = typed_arguments(docket, letter.function, arguments)
    edited = await docket.dead.edit(id, **changes)
    if not retry:
        return ActionResult(sentence=f"Edited dead letter {id} of {edited.key}.", count=1, details=edited.as_json())
    report = await docket.dead.retry(id=id)
    sentence = f"Edited dead letter {id}. {report_in_words('Retried', report.retried, report)}"
    return ActionResult(sentence=sentence, count=1, details=report.as_json())


LETTER_ACTIONS: tuple[Action, ...] = (
    Action(
        "letters/retry",
        "dead.retry",
        "Make tasks of dead letters",
        Role.OPERATOR,
        (*_BATCH, *fields(DeadLetters.retry, over="Spread the tasks evenly over so many seconds.")),
        retry,
    ),
    Action("letters/discard", "dead.discard", "Delete dead letters", Role.ADMIN, _BATCH, discard),
    Action(
        "letters/edit",
        "dead.edit",
        "Change arguments of a dead letter",
        Role.ADMIN,
        fields(
            edit,
            id="The id of the letter.",
            arguments="New values by the names of their parameters.",
            retry="Retry the letter at once.",
        ),
        edit,
    ),
)
