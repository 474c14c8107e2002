"""The options of `add`, `replace` and `call`: declared once, and the same from the caller to the
row of the script."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from docket import Docket, TaskCall
from docket import sync as docket_sync
from docket.calls import OPTIONS, with_options
from docket.ledger import NewTask
from docket.storage.schema.requests import NewCall
from tests.times import later

Rows = list[NewCall]


async def noop(*args: object) -> None: ...


@pytest.fixture
def weight(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An option of these tests."""
    monkeypatch.setitem(OPTIONS, "weight", int)
    return {"weight": 3}


@pytest.fixture
def rows(docket: Docket, monkeypatch: pytest.MonkeyPatch) -> Rows:
    """The rows that the script `enqueue` gets."""
    seen: Rows = []
    run_script: Callable[..., Any] = docket.ledger.tasks._calls.run_script  # pyright: ignore[reportPrivateUsage]

    async def record(name: str, arguments: Sequence[Any], *others: Any) -> Any:
        if name == "enqueue":
            seen.extend(NewCall(*row) for row in arguments)
        return await run_script(name, arguments, *others)

    monkeypatch.setattr(docket.ledger.tasks._calls, "run_script", record)  # pyright: ignore[reportPrivateUsage]
    return seen


async def test_an_option_reaches_the_script(docket: Docket, rows: Rows, weight: dict[str, Any]) -> None:
    await docket.add(noop, **weight)()
    await docket.add(noop, key="named", **weight)()
    await docket.replace(noop, later(), "named", **weight)()

    assert [row.options for row in rows] == [weight] * 3


async def test_an_option_of_many_calls_reaches_the_script(docket: Docket, rows: Rows, weight: dict[str, Any]) -> None:
    calls = [docket.call(noop)(), docket.call(noop, **weight)(), docket.call(noop, key="named", **weight)()]
    executions = await docket.add_many(calls)

    assert [row.options for row in rows] == [weight] * 2
    assert [row.key.decode() for row in rows] == [execution.key for execution in executions[1:]]


async def test_a_call_without_options_has_the_row_that_it_had(docket: Docket, rows: Rows) -> None:
    await docket.add(noop)()
    await docket.add(noop, key="named")()

    assert [row.options for row in rows] == [None, None]


def test_copies_of_a_call_have_its_options(docket: Docket, weight: dict[str, Any]) -> None:
    for key in (None, "named"):
        call = docket.call(noop, key=key, **weight)()
        fields = {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}
        copies = [
            dataclasses.replace(call, seed=True),
            copy.deepcopy(call),
            pickle.loads(pickle.dumps(call)),
            TaskCall(**copy.deepcopy(fields)),
        ]
        assert [one._options for one in copies] == [weight] * 4  # pyright: ignore[reportPrivateUsage]


def test_a_prepared_task_has_the_options_of_its_call(docket: Docket, weight: dict[str, Any]) -> None:
    assert NewTask.from_bytes(NewTask("key", "noop", b"", options=weight).to_bytes()).options == weight  # pyright: ignore[reportArgumentType]


def test_a_sync_docket_has_the_same_options(
    docket: Docket, weight: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    blocking: Any = docket_sync.Docket(docket.name, docket.url)
    monkeypatch.setattr(blocking._producer, "schedule", lambda fields, args, kwargs: seen.append(fields.options))

    blocking.add(noop, **weight)()
    blocking.replace(noop, later(), "key", **weight)()

    assert seen == [weight] * 2
    assert blocking.call(noop, **weight)()._options == weight


@pytest.mark.parametrize("is_sync", [False, True])
def test_an_unknown_option_is_refused_at_once(docket: Docket, is_sync: bool) -> None:
    caller: Any = docket_sync.Docket(docket.name, docket.url) if is_sync else docket
    for verb, given in (("add", ()), ("call", ()), ("replace", (later(), "key"))):
        with pytest.raises(TypeError, match=rf"Docket\.{verb}\(\) got an unexpected keyword argument 'customer'"):
            getattr(caller, verb)(noop, *given, customer=1)


def test_a_value_of_another_type_is_refused(docket: Docket, weight: dict[str, Any]) -> None:
    caller: Any = docket
    with pytest.raises(TypeError, match=r"weight='3': it must be of the type int"):
        caller.add(noop, **{name: str(value) for name, value in weight.items()})


def test_a_signature_names_each_option(weight: dict[str, Any]) -> None:
    def verb(function: object, when: object = None, **options: object) -> None: ...

    assert str(inspect.signature(with_options(verb))).startswith(
        "(function: 'object', when: 'object' = None, *, weight=None)"
    )
    assert list(weight) == ["weight"]
