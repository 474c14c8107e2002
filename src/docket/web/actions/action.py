"""A change: its name, the role that it needs, its fields, and the function that makes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from docket.dead import Report
from docket.docket import Docket
from docket.errors import DocketError
from docket.ledger.audit import acting_as
from docket.web.access import lacking
from docket.web.guards import Role, Visitor
from docket.web.inputs import Input, refused
from docket.web.jobs import Job
from docket.web.problems import Refused

from .fields import fields


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionResult:
    """The result of a change: a sentence for people, how many tasks or letters it concerned, and
    the details for programs."""

    sentence: str
    count: int | None = None
    details: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A change that somebody wants: where, and the job that shows how far it is."""

    docket: Docket
    job: Job


ActionFunction = Callable[..., Awaitable[ActionResult]]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of change. `name` is that of the method of `Docket`, for the audit. `make` gets a
    `ChangeRequest`, and the fields by their names."""

    path: str
    name: str
    summary: str
    role: Role
    inputs: tuple[Input, ...]
    make: ActionFunction

    @classmethod
    def of_verb(
        cls,
        path: str,
        verb: Callable[..., Awaitable[Any]],
        summary: str,
        role: Role,
        about: Mapping[str, str | Input],
        answer: ActionFunction,
    ) -> Action:
        """A change that is one call of a verb of operators. `about` has the fields that the
        dashboard offers, and their help: the signature of the verb says the rest. `answer` gets the
        request, the result of the verb and the fields."""

        async def make(request: ChangeRequest, **given: Any) -> ActionResult:
            return await answer(request, await verb(request.docket, **given), **given)

        return cls(path, verb.__name__, summary, role, fields(verb, **about), make)


def check_role(action: Action, visitor: Visitor) -> None:
    """Raises Refused if the visitor's role is not enough."""
    if not visitor.may(action.role):
        failure = lacking(visitor, action.role)
        raise Refused(failure.status, failure.name, failure.title, failure.detail)


async def carry_out(
    action: Action, docket: Docket, visitor: Visitor, via: str, given: Mapping[str, Any], job: Job
) -> ActionResult:
    """Makes the change, and writes down who made it, whatever becomes of it. Raises Refused if the
    visitor's role is not enough or a value is not valid."""
    check_role(action, visitor)
    with acting_as(visitor.name, via):
        async with docket.ledger.audit.change(action.name, in_words(given)) as note:
            try:
                done = await action.make(ChangeRequest(docket, job), **given)
            except DocketError:
                raise
            except (ValueError, TypeError) as error:
                raise refused(str(error)) from error
            note.count = done.count
            return done


def in_words(given: Mapping[str, Any]) -> str:
    """The fields of a change on one line, for the audit. Arguments of tasks are not shown: only
    `Logged` ones may be, and nobody has said which these are."""
    return " ".join(f"{name}={_shown(name, value)}" for name, value in given.items())


def _shown(name: str, value: Any) -> str:
    if name in ("arguments", "args", "kwargs"):
        return "…"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return f"{items[:20]!r}" + (f" and {len(items) - 20} more" if len(items) > 20 else "")
    return str(value) if isinstance(value, str | int | float) else repr(value)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def report_in_words(verb: str, number: int, report: Report) -> str:
    """The result of a batch of letters, as a sentence."""
    words = [f"{verb} {counted(number, 'dead letter')}"]
    if report.chains:
        words.append(f"{counted(report.chains, 'automatic task')} will start again")
    words += [f"{count:,} not: {why}" for why, count in report.skipped.items()]
    if report.gone:
        words.append(f"{report.gone:,} gone in the meantime")
    if report.left:
        words.append(f"{report.left:,} left")
    return "; ".join(words) + "."
