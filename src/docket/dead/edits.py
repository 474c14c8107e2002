"""Changes the arguments of a dead letter."""

from __future__ import annotations

import inspect
from typing import Any

from docket.dependencies import argument_check, logged_fingerprints, plan_for
from docket.errors import LetterChanged, LetterNotFound, PayloadTooLarge, TaskNotRegistered, Undecodable
from docket.execution.context import DocketContext
from docket.ledger.letters import Edited, LetterRow, fingerprint_lines
from docket.ledger.payloads import LARGEST_CALL, call_payload
from docket.storage.letters import LetterRecord, read_letter


async def edit(docket: DocketContext, row: LetterRow, changes: dict[str, Any]) -> None:
    """Opens the call, binds the new arguments to the signature, and seals the call again."""
    record = read_letter(row.data)
    function = docket.tasks.get(record.task.function_name)
    if function is None:
        raise TaskNotRegistered(
            f"{record.task.function_name!r} is not registered here: an edit needs the function, to check the arguments"
        )
    args, kwargs, trace = await _opened(docket, record, function)
    args, kwargs = _bound(function, record.task.function_name, args, kwargs, changes)
    argument_check(function)(*args, **kwargs)
    call = docket.payloads.seal_call(record.key, record.task.function_name, function, args, kwargs, trace)
    if len(call) > docket.max_payload:
        raise PayloadTooLarge(f"the arguments take {len(call):,} bytes, more than the {docket.max_payload:,} allowed")
    payload = call_payload(call) if len(call) > LARGEST_CALL else None
    marks = {} if docket.payloads.encrypts else logged_fingerprints(function, args, kwargs)
    while True:
        if payload is not None:
            await docket.ledger.payloads.store(payload)
        answer = await docket.ledger.letters.edit(row.id, record.edits, call, payload, fingerprint_lines(marks))
        if answer is not Edited.PAYLOAD_MISSING:
            break
    if answer is Edited.GONE:
        raise LetterNotFound(f"dead letter {row.id} is gone: it was retried, discarded or dropped in the meantime")
    if answer is Edited.CHANGED:
        raise LetterChanged(f"dead letter {row.id} was edited by somebody else in the meantime; nothing was changed")
    if answer is Edited.DAMAGED:
        raise Undecodable(f"the record of dead letter {row.id} is damaged; it can only be discarded")


async def _opened(
    docket: DocketContext, record: LetterRecord, function: Any
) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, str]]:
    await docket.ledger.payloads.complete(record.task)
    return docket.payloads.open_call(record.key, record.task.function_name, function, record.task.call)


def _bound(
    function: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], changes: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with the changes. Raises TypeError that names the parameter."""
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    own = [p for p in parameters.values() if p.name not in plan_for(function).parameters]
    fixed = [p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in own)
    unknown = [change for change in changes if change not in fixed]
    if unknown and not takes_any:
        raise TypeError(f"{name}() has no parameter {unknown[0]!r}; it has {', '.join(fixed) or 'none'}")
    positions = [p.name for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    positional, named = list(args), dict(kwargs)
    for change, value in changes.items():
        at = positions.index(change) if change in positions else len(positional)
        if at < len(positional):
            positional[at] = value
        else:
            named[change] = value
    return tuple(positional), named
