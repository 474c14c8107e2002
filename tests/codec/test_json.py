"""Typed JSON: what a function receives is what its caller passed, or `add` says why not."""

from __future__ import annotations

import contextlib
import enum
import functools
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from docket import ConcurrencyLimit, Logged, Perpetual, Retry, TaskFailed, TaskLogger, Undecodable, Unserializable
from docket.codec import Payloads
from docket.errors import PayloadRefused, PayloadTooLarge
from docket.model.states import ExecutionState

if TYPE_CHECKING:
    from shop import Basket  # type: ignore[import-not-found]

JSON = Payloads("json")
RUN = ("key", 7, ExecutionState.COMPLETED)
FAILED_RUN = ("key", 7, ExecutionState.FAILED)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Address:
    street: str
    since: date


@dataclass
class Customer:
    name: str
    address: Address | None = None
    tags: set[str] = field(default_factory=set[str])


@dataclass
class GoldCustomer(Customer):
    discount: float = 0.1


class Item(msgspec.Struct):
    sku: str
    price: Decimal


class Invoice(pydantic.BaseModel):
    number: int
    at: datetime
    customer: str | None = None


class Note(pydantic.BaseModel):
    text: str


class Point(NamedTuple):
    x: int
    y: int


class Settings(TypedDict, total=False):
    depth: int


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    sealed = JSON.seal_call("key", "f", function, args, kwargs)
    opened_args, opened_kwargs, _ = JSON.open_call("key", "f", function, sealed)
    return opened_args, opened_kwargs


NOW = datetime(2026, 11, 17, 3, 4, 5, 678901, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (None, None),
    (int, 5),
    (float, 1),
    (str, "grüße"),
    (bytes, b"\x00\xff"),
    (datetime, NOW),
    (datetime, datetime(2026, 1, 1)),
    (date, NOW.date()),
    (time, time(3, 4)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (uuid.UUID, uuid.uuid4()),
    (Decimal, Decimal("1.50")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Customer, Customer("ann", Address("High Street", date(2026, 1, 1)), {"a", "b"})),
    (Item, Item("x", Decimal("9.99"))),
    (Invoice, Invoice(number=1, at=NOW)),
    (list[Invoice], [Invoice(number=1, at=NOW), Invoice(number=2, at=NOW, customer="ann")]),
    (dict[str, Invoice], {"a": Invoice(number=1, at=NOW)}),
    (Invoice | Note, Note(text="hello")),
    (Invoice | Note | None, None),
    (Point, Point(1, 2)),
    (Settings, {"depth": 3}),
    (PurePosixPath, PurePosixPath("/a/b")),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (list[tuple[int, datetime]], [(1, NOW)]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict[int, str], {1: "a"}),
    (dict[uuid.UUID, Decimal], {uuid.uuid4(): Decimal(1)}),
    (int | str, "a"),
    (int | None, None),
    (Customer | None, Customer("bob")),
    (int | list[str], ["a"]),
    (datetime | None, NOW),
    (Annotated[int, Logged()], 5),
    (Annotated[str, ConcurrencyLimit(2)], "ann"),
    (Any, {"a": [1, 2.5, None, True, "x"]}),
    (object, [1]),
    (Sequence[int], [1, 2]),
]


@pytest.mark.parametrize(
    ("annotation", "value"), VALUES, ids=[f"{n}-{type(v).__name__}" for n, (_, v) in enumerate(VALUES)]
)
def test_an_annotated_value_arrives_as_it_was_passed(annotation: Any, value: Any) -> None:
    async def task(value: Any, *, option: Any = None) -> Any: ...

    task.__annotations__ = {"value": annotation, "option": annotation, "return": annotation}
    args, kwargs = there_and_back(task, value, option=value)
    assert (args, kwargs) == ((value,), {"option": value})
    assert type(args[0]) is type(value) or (annotation is float and type(args[0]) is float)
    # A second time, with the decoders that the first call has left.
    assert there_and_back(task, value) == ((value,), {})
    assert JSON.open_result(*RUN, task, JSON.seal_result(*RUN, task, value)) == value


async def untyped(value, other=None):  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize("value", [None, True, 5, 2**63, 2.5, "a", [1, [2]], {"a": {"b": None}}])
def test_a_parameter_without_an_annotation_takes_what_json_knows(value: Any) -> None:
    assert there_and_back(untyped, value, other=value) == ((value,), {"other": value})


@pytest.mark.parametrize(
    "value",
    [
        NOW, uuid.uuid4(), Decimal(1), b"a", {1: 2}, {1}, Colour.RED, Customer("ann"), Item("x", Decimal(1)),
        Invoice(number=1, at=NOW), Point(1, 2), [NOW], {"a": b"b"}, float("nan"), float("inf"), object(), "\ud800",
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_does_not_know_is_refused_by_name_without_an_annotation(value: Any) -> None:
    with pytest.raises(Unserializable, match="argument 'other', of type"):
        there_and_back(untyped, 1, other=value)
    with pytest.raises(Unserializable, match="argument 'value', of type"):
        there_and_back(untyped, value)
    with pytest.raises(Unserializable, match="result of type"):
        JSON.seal_result(*RUN, untyped, value)


async def typed(number: int, customer: Customer, *rest: int, when: datetime | str = "", **more: date) -> Customer: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        (("5", Customer("a")), {}, "argument 'number', of type str.*does not fit"),
        ((5, GoldCustomer("a")), {}, "argument 'customer', of type GoldCustomer.*would arrive as Customer"),
        ((5, {"name": "a"}), {}, "argument 'customer', of type dict.*would arrive as Customer"),
        ((5, Customer("a"), "six"), {}, "argument 'rest', of type str"),
        ((5, Customer("a")), {"born": "yesterday"}, "argument 'born', of type str"),
    ],
)
def test_a_value_that_does_not_fit_its_annotation_is_refused_by_name(
    args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    with pytest.raises(Unserializable, match=problem):
        there_and_back(typed, *args, **kwargs)


@pytest.mark.parametrize("value", [NOW, NOW.isoformat(), "soon"])
def test_a_union_that_json_cannot_tell_apart_never_changes_a_value_silently(value: Any) -> None:
    arrived = value
    with contextlib.suppress(Unserializable):
        arrived = there_and_back(typed, 5, Customer("a"), when=value)[1]["when"]
    assert (type(arrived), arrived) == (type(value), value)


def test_variable_parameters_are_typed_too() -> None:
    born = date(2026, 1, 1)
    assert there_and_back(typed, 5, Customer("a"), 6, 7, born=born) == ((5, Customer("a"), 6, 7), {"born": born})
    assert there_and_back(typed, number=5, customer=Customer("a")) == ((), {"number": 5, "customer": Customer("a")})


async def depends(number: int, retry: Retry = Retry(attempts=2), log: Any = TaskLogger()) -> None: ...


@pytest.mark.parametrize("call", [((1, Retry(attempts=5)), {}), ((1,), {"retry": Retry(attempts=5)})])
def test_a_behaviour_as_an_argument_is_refused_by_name(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    args, kwargs = call
    with pytest.raises(Unserializable, match="argument 'retry'.*behaviours and other dependencies cannot be arguments"):
        there_and_back(depends, *args, **kwargs)
    with pytest.raises(Unserializable, match="argument 'perpetual'"):
        there_and_back(untyped, 1, perpetual=Perpetual())


def test_a_function_with_dependencies_takes_its_own_arguments() -> None:
    assert there_and_back(depends, 1) == ((1,), {})
    assert there_and_back(depends, 1, retry=None) == ((1,), {"retry": None})


def test_methods_partials_and_objects_are_typed_by_their_functions() -> None:
    class Shop:
        async def open(self, at: datetime) -> None: ...

        async def __call__(self, at: datetime) -> datetime: ...

    async def both(first: datetime, second: date) -> None: ...

    for function in (Shop().open, Shop(), functools.partial(both, second=NOW.date())):
        assert there_and_back(function, NOW) == ((NOW,), {})


async def half_known(basket: Basket, at: datetime) -> None: ...


def test_a_name_for_type_checkers_only_affects_only_its_parameter() -> None:
    assert there_and_back(half_known, 1, NOW) == ((1, NOW), {})
    with pytest.raises(Unserializable, match="argument 'basket'.*annotate"):
        there_and_back(half_known, NOW, NOW)


def test_an_annotation_that_cannot_be_read_from_json_is_named() -> None:
    async def task(value: Any) -> None: ...

    class Other: ...

    class Another: ...

    task.__annotations__ = {"value": Other | Another}
    with pytest.raises(Unserializable, match="argument 'value'.*its annotation cannot be read from JSON"):
        there_and_back(task, Other())


def test_the_result_of_a_function_that_returns_an_awaitable_is_typed() -> None:
    def later() -> Awaitable[datetime]: ...  # type: ignore[empty-body]

    def soon() -> Coroutine[Any, Any, date]: ...  # type: ignore[empty-body]

    assert JSON.open_result(*RUN, later, JSON.seal_result(*RUN, later, NOW)) == NOW
    assert JSON.open_result(*RUN, soon, JSON.seal_result(*RUN, soon, NOW.date())) == NOW.date()


def test_a_process_that_does_not_know_the_function_sees_plain_json() -> None:
    sealed = JSON.seal_call("key", "typed", typed, (5, Customer("a")), {})

    args, _, _ = JSON.open_call("key", "typed", None, sealed)
    assert args == (5, {"name": "a", "address": None, "tags": []})


def test_a_worker_with_other_annotations_names_the_argument() -> None:
    async def newer(number: str, customer: Customer) -> None: ...

    sealed = JSON.seal_call("key", "typed", typed, (5, Customer("a")), {})
    with pytest.raises(Undecodable, match="argument 'number' does not fit"):
        JSON.open_call("key", "typed", newer, sealed)


@pytest.mark.parametrize("body", [b"", b"[", b"5", b"[1,2]", b"[[],{}", b"[" * 100_000, b'[[],{"a":"\xff"}]'])
def test_bytes_that_are_not_a_call_are_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable):
        JSON.open_call("key", "f", typed, b"\0\0\x01\x02\x00" + body)
    with pytest.raises(Undecodable):
        JSON.open_error(*FAILED_RUN, b"\x01\x02\x00" + body)


# Exceptions


class ShopClosed(Exception):
    def __init__(self, shop: str, until: int) -> None:
        super().__init__(shop, until)
        self.shop = shop


class Picky(Exception):
    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)


def sealed_error(error: BaseException, payloads: Payloads = JSON, most: int | None = None) -> Exception:
    try:
        raise error
    except BaseException as raised:
        return payloads.open_error(*FAILED_RUN, payloads.seal_error(*FAILED_RUN, raised, most))


def test_an_exception_becomes_type_text_and_traceback() -> None:
    error = sealed_error(ValueError("smoke"))

    assert type(error) is TaskFailed
    assert str(error) == "ValueError: smoke"
    assert error.type_name == "builtins.ValueError"
    assert "in sealed_error" in (error.traceback or "")
    assert "In the worker" in error.__notes__[0]


def test_a_registered_exception_is_raised_as_itself() -> None:
    payloads = Payloads("json", exceptions=[ShopClosed, ValueError])

    error = sealed_error(ShopClosed("corner", 9), payloads)
    assert isinstance(error, ShopClosed)
    assert (error.shop, error.args) == ("corner", ("corner", 9))
    assert type(sealed_error(ValueError("smoke"), payloads)) is ValueError
    assert type(sealed_error(KeyError("smoke"), payloads)) is TaskFailed


@pytest.mark.parametrize("error", [ShopClosed("corner", NOW), Picky(reason="no")], ids=["args", "init"])  # type: ignore[arg-type]
def test_a_registered_exception_that_json_cannot_rebuild_becomes_a_failed_task(error: Exception) -> None:
    assert type(sealed_error(error, Payloads("json", exceptions=[ShopClosed, Picky]))) is TaskFailed


@pytest.mark.parametrize("error", [Undecodable("x"), PayloadTooLarge("y"), PayloadRefused("z"), TaskFailed("t")])
def test_errors_of_docket_are_raised_as_themselves(error: Exception) -> None:
    found = sealed_error(error)

    assert (type(found), str(found)) == (type(error), str(error))


def test_an_exit_never_ends_the_process_that_waits() -> None:
    error = sealed_error(SystemExit(3))

    assert type(error) is TaskFailed
    assert str(error) == "SystemExit: 3"


def test_a_long_exception_is_cut() -> None:
    error = sealed_error(ValueError("a" * 100_000), most=5_000)

    assert type(error) is TaskFailed
    assert len(str(error)) <= 2_000


# Both codecs


def test_a_docket_reads_the_other_codec_only_if_it_accepts_it() -> None:
    pickled = Payloads().seal_call("key", "f", untyped, (1,), {})
    written = JSON.seal_call("key", "f", untyped, (1,), {})

    for strict, foreign in ((JSON, pickled), (Payloads(), written)):
        with pytest.raises(PayloadRefused) as refused:
            strict.open_call("key", "f", untyped, foreign)
        assert refused.value.reason == "codec"
    for both in (Payloads("json", accept={"pickle"}), Payloads("pickle", accept={"json"})):
        for call in (pickled, written):
            assert both.open_call("key", "f", untyped, call)[0] == (1,)
