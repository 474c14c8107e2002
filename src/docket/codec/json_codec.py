"""A codec that runs no code when it decodes: JSON, typed by the annotations of the function."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterable
from typing import Any, cast

from uncalled_for import Dependency

from docket import errors
from docket.errors import DocketError, MissingPackage, TaskFailed, Undecodable, Unserializable

from .error_texts import LONGEST_TEXT, as_ordinary, error_text
from .json_types import CallTypes, Json
from .remote_tracebacks import add_traceback
from .tracebacks import traceback_text

Function = Callable[..., Any]
_SEQUENCES = (list, tuple)
_OWN = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, DocketError)]


class JsonCodec:
    """Arguments and results as JSON. They are decoded by the annotations of the task function; a
    parameter without an annotation takes what JSON knows: None, bool, int, float, str, list, dict.

    Encoding decodes, too, and compares. So a value that would arrive as another one is refused
    where it is passed.
    """

    id = 2
    name = "json"
    runs_code = False

    def __init__(self, exceptions: Iterable[type[Exception]] = ()) -> None:
        try:
            self._json = Json(importlib.import_module("msgspec"))
        except ImportError as error:
            raise MissingPackage("codec='json' needs the package msgspec: pip install 'docket[json]'") from error
        self._exceptions = {_type_name(error): error for error in (*_OWN, *exceptions)}
        self._types: dict[Function | None, CallTypes] = {}

    # Calls

    def encode_call(self, function: Function | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        types = self._types.get(function) or self._types_of(function)
        try:
            body = self._json.encode((args, kwargs))
            if types.decode_call(body) == (args, kwargs) and not types.may_pass_dependency(args, kwargs):
                return body
        except Exception:
            pass
        # Rare: an argument cannot be encoded, or it does not come back as an equal value.
        for at, value in enumerate(args):
            self._check_argument(types, types.name_at(at) or f"number {at + 1}", value)
        for name, value in kwargs.items():
            self._check_argument(types, name, value)
        return self._json.encode((args, kwargs))

    def decode_call(self, function: Function | None, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        types = self._types.get(function) or self._types_of(function)
        return types.decode_call(body)

    def _types_of(self, function: Function | None) -> CallTypes:
        types = self._types[function] = CallTypes(self._json, function)
        return types

    def _check_argument(self, types: CallTypes, name: str, value: Any) -> None:
        """Raises Unserializable if the argument cannot be passed, and says why."""
        problem = f"argument {name!r}, of type {type(value).__name__}, cannot be passed as JSON: "
        if isinstance(value, Dependency):
            raise Unserializable(
                problem + "behaviours and other dependencies cannot be arguments with codec='json'; declare them"
            )
        try:
            decode = types.decoder(name)
        except TypeError as error:
            raise Unserializable(f"{problem}its annotation cannot be read from JSON: {error}"[:500]) from error
        self._check(value, decode, problem, is_annotated=name in types.annotations)

    # Results

    def encode_result(self, function: Function | None, value: Any) -> bytes:
        types = self._types.get(function) or self._types_of(function)
        try:
            body = self._json.encode(value)
            if types.decode_result(body) == value:
                return body
        except Exception:
            pass
        problem = f"result of type {type(value).__name__} cannot be passed as JSON: "
        self._check(value, types.decode_result, problem, is_annotated="return" in types.annotations)
        return self._json.encode(value)

    def decode_result(self, function: Function | None, body: bytes) -> Any:
        types = self._types.get(function) or self._types_of(function)
        return types.decode_result(body)

    def _check(self, value: Any, decode: Callable[[bytes], Any], problem: str, *, is_annotated: bool) -> None:
        try:
            body = self._json.encode(value)
        except Exception as error:
            raise Unserializable(f"{problem}{error_text(error)}"[:500]) from error
        try:
            arrived = decode(body)
        except Exception as error:
            raise Unserializable(f"{problem}it does not fit the annotation: {error}"[:500]) from error
        if not _is_same(value, arrived):
            remedy = "" if is_annotated else "; annotate it with its type"
            raise Unserializable(f"{problem}it would arrive as {_shown(arrived)}{remedy}"[:500])

    # Exceptions

    def encode_error(self, error: BaseException, most: int | None) -> bytes:
        named = error if isinstance(error, Exception) else as_ordinary(error)
        stored: dict[str, Any] = {"type": _type_name(type(named)), "text": _text(named)[:LONGEST_TEXT]}
        arguments = self._plain_arguments(named)
        if arguments is not None:
            stored["args"] = arguments
        shown = traceback_text(error)
        if shown is not None:
            stored["traceback"] = shown
        body = self._json.encode(stored)
        if most is not None and len(body) > most:
            body = self._json.encode({"type": stored["type"], "text": stored["text"]})
        return body

    def _plain_arguments(self, error: Exception) -> list[Any] | None:
        """The arguments of an exception, if JSON has them all."""
        try:
            arguments = self._json.decode_plain(self._json.encode(error.args))
            return arguments if _is_same(list(error.args), arguments) else None
        except Exception:
            return None

    def decode_error(self, body: bytes) -> Exception:
        try:
            stored = self._json.decode_plain(body)
            name, text = str(stored["type"]), str(stored["text"])
            arguments, shown = stored.get("args"), stored.get("traceback")
        except Exception as error:
            raise Undecodable(f"payload is not an exception: {error}"[:500]) from None
        raised = self._rebuilt(name, arguments) or TaskFailed(f"{name.rpartition('.')[2]}: {text}"[:LONGEST_TEXT])
        if isinstance(raised, TaskFailed):
            raised.type_name = name
        add_traceback(raised, str(shown) if shown else None)
        return raised

    def read_traceback(self, body: bytes) -> str | None:
        with contextlib.suppress(Exception):
            shown = self._json.decode_plain(body).get("traceback")
            return str(shown) if shown else None
        return None

    def _rebuilt(self, name: str, arguments: Any) -> Exception | None:
        """An exception of a registered type, with its arguments."""
        known = self._exceptions.get(name)
        if known is None or not isinstance(arguments, list):
            return None
        try:
            return known(*cast("list[Any]", arguments))
        except Exception:
            return None


def _is_same(value: Any, arrived: Any) -> bool:
    """Whether a value arrives as it was passed. A tuple may arrive as a list and a number as an
    equal number; everything else keeps its type, also inside."""
    kind, arrived_kind = cast("type[Any]", type(value)), cast("type[Any]", type(arrived))
    if kind in _SEQUENCES and arrived_kind in _SEQUENCES:
        return len(value) == len(arrived) and all(map(_is_same, value, arrived))
    if kind is dict and arrived_kind is dict:
        return value.keys() == arrived.keys() and all(_is_same(value[name], arrived[name]) for name in value)
    if kind is arrived_kind and dataclasses.is_dataclass(kind):
        return all(_is_same(getattr(value, f.name), getattr(arrived, f.name)) for f in dataclasses.fields(kind))
    return bool(value == arrived)


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:100]


def _type_name(type: type) -> str:
    return f"{type.__module__}.{type.__qualname__}"


def _text(error: Exception) -> str:
    try:
        return str(error)
    except BaseException:
        return error_text(error)
