"""A codec that runs no code when it decodes: JSON, typed by the annotations of the function."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import sys
import typing
from collections.abc import Awaitable, Callable, Iterable
from pathlib import PurePath
from typing import Any, cast, get_args, get_origin, get_type_hints

from uncalled_for import Dependency

from docket import errors
from docket.errors import DocketError, MissingPackage, TaskFailed, Undecodable, Unserializable

from .error_texts import LONGEST_TEXT, add_traceback, as_ordinary, error_text, traceback_text

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


Decode = Callable[[bytes], Any]
# How many decoders a function has at most. Functions with `**kwargs` may be called in many ways.
MOST_SHAPES = 50
_ONE_EACH = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Json:
    """The package msgspec, with the types of pydantic and pathlib added."""

    def __init__(self, msgspec: Any) -> None:
        self._msgspec = msgspec
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=self._encode_other).encode
        self.decode_plain: Decode = msgspec.json.Decoder().decode
        raw = msgspec.Raw
        # The arguments of a call, each of them still as JSON.
        self.split: Decode = msgspec.json.Decoder(tuple[list[raw], dict[str, raw]]).decode
        self.as_dict: Callable[[Any], dict[str, Any]] = msgspec.structs.asdict

    def call_decoder(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decode:
        """Decodes a call with exactly these parameters, given with their types. Raises TypeError or
        ValueError if msgspec cannot do that."""
        fields = list(kwargs.items())
        keywords = self._msgspec.defstruct("Keywords", fields, kw_only=True, forbid_unknown_fields=True)
        call = cast(Any, tuple)[cast(Any, tuple)[args or ()], keywords]
        return self._msgspec.json.Decoder(call, dec_hook=self._decode_other).decode

    def decoder(self, annotation: Any) -> Decode:
        """Raises TypeError if JSON cannot be read as this type."""
        if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
            return self.decode_plain
        try:
            return self._msgspec.json.Decoder(annotation, dec_hook=self._decode_other).decode
        except TypeError:
            # msgspec refuses some unions, for instance of two models.
            pydantic = sys.modules.get("pydantic")
            if pydantic is None:
                raise
            return _pydantic_decoder(pydantic, annotation)

    def _encode_other(self, value: Any) -> Any:
        if isinstance(value, PurePath):
            return str(value)
        if hasattr(value, "model_dump_json"):
            return self._msgspec.Raw(value.model_dump_json().encode())
        raise TypeError(f"JSON has no form for the type {type(value).__name__}")

    def _decode_other(self, type: Any, value: Any) -> Any:
        if hasattr(type, "model_validate_json"):
            return type.model_validate_json(self.encode(value))
        if inspect.isclass(type) and issubclass(type, PurePath) and isinstance(value, str):
            return type(value)
        raise TypeError(f"JSON has no form for the type {getattr(type, '__name__', type)}")


def _pydantic_decoder(pydantic: Any, annotation: Any) -> Decode:
    try:
        validate = pydantic.TypeAdapter(annotation).validate_json
    except Exception as error:
        raise TypeError(str(error)) from error
    return lambda data: validate(bytes(data))


class CallTypes:
    """The parameters of one function. `annotations` has their types, as far as they are known."""

    def __init__(self, json: Json, function: Callable[..., Any] | None) -> None:
        self._json = json
        parameters = _parameters(function)
        self.annotations: dict[str, Any] = _hints(function)
        self.positions: list[str] = [name for name, parameter in parameters.items() if parameter.kind in _ONE_EACH]
        self._rest = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL), None)
        self._others = next((name for name, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
        self._parameters = parameters
        # The parameters of behaviours and other dependencies.
        self.dependencies: frozenset[str] = frozenset(
            name for name, parameter in parameters.items() if isinstance(parameter.default, Dependency)
        )
        self._first_dependency = next(
            (at for at, name in enumerate(self.positions) if name in self.dependencies), len(self.positions)
        )
        self._decoders: dict[str, Decode] = {}
        # Decode calls at once: all that have the same number of positional arguments and the same
        # keywords. Callers rarely change them, so the decoder of the last call is tried first.
        self._whole: Decode | None = None
        self._known_shapes: dict[tuple[Any, ...], Decode | None] = {}
        self._result: Decode | None = None

    def name_at(self, position: int) -> str:
        """The parameter of a positional argument. Empty if there is none; the call will fail."""
        return self.positions[position] if position < len(self.positions) else self._rest or ""

    def may_pass_dependency(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if not self.dependencies:
            return False
        return len(args) > self._first_dependency or not self.dependencies.isdisjoint(kwargs)

    def decode_call(self, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Raises Undecodable and names the argument."""
        if self._whole is not None:
            try:
                args, keywords = self._whole(body)
                return args, self._json.as_dict(keywords)
            except Exception:
                # Other arguments, or one of them does not fit.
                self._whole = None
        try:
            args, kwargs = self._json.split(body)
        except Exception as error:
            raise Undecodable(f"payload is not a call: {error}"[:500]) from None
        values = tuple([self.decode(self.name_at(at), raw) for at, raw in enumerate(args)])
        named = {name: self.decode(name, raw) for name, raw in kwargs.items()}
        self._whole = self._decoder_of(len(args), tuple(named))
        return values, named

    def decode(self, name: str, raw: bytes) -> Any:
        """One argument. Raises Undecodable."""
        try:
            return self.decoder(name)(raw)
        except Exception as error:
            raise Undecodable(f"argument {name!r} does not fit its annotation: {error}"[:500]) from error

    def decoder(self, name: str) -> Decode:
        """Raises TypeError if JSON cannot be read as the type of this parameter."""
        found = self._decoders.get(name)
        if found is None:
            found = self._json.decoder(self._annotation(name))
            if name in self._parameters:
                self._decoders[name] = found
        return found

    def decode_result(self, body: bytes) -> Any:
        """Raises Undecodable."""
        try:
            if self._result is None:
                self._result = self._json.decoder(self.annotations.get("return", Any))
            return self._result(body)
        except Exception as error:
            raise Undecodable(f"the result does not fit the function's annotation: {error}"[:500]) from error

    def _annotation(self, name: str) -> Any:
        if name not in self._parameters and self._others is not None:
            name = self._others
        # A caller may pass None for a behaviour, and nothing else.
        return Any if name in self.dependencies else self.annotations.get(name, Any)

    def _decoder_of(self, count: int, keywords: tuple[str, ...]) -> Decode | None:
        """Decodes calls of this shape, if msgspec can do it at once."""
        shape = (count, *keywords)
        if not all(name.isidentifier() and not name.startswith("__") for name in keywords):
            # Names that mean something to Python, in a payload that anybody may have written.
            return None
        if shape not in self._known_shapes and len(self._known_shapes) < MOST_SHAPES:
            try:
                args = tuple([self._msgspec_type(self.name_at(at)) for at in range(count)])
                self._known_shapes[shape] = self._json.call_decoder(
                    args, {name: self._msgspec_type(name) for name in keywords}
                )
            except Exception:
                self._known_shapes[shape] = None
        return self._known_shapes.get(shape)

    def _msgspec_type(self, name: str) -> Any:
        annotation = self._annotation(name)
        return Any if annotation is object else annotation


def _parameters(function: Callable[..., Any] | None) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters) if function is not None else {}
    except (TypeError, ValueError):
        return {}


def _hints(function: Any) -> dict[str, Any]:
    """The annotations, evaluated. A name that exists only for type checkers affects only its own
    parameter, which counts as not annotated."""
    while isinstance(function, functools.partial):
        function = cast(Any, function).func
    if function is not None and not inspect.isroutine(function):
        function = cast(Any, type(function)).__call__
    try:
        hints = get_type_hints(function, include_extras=True) if function is not None else {}
    except Exception:
        hints = _hints_one_by_one(function)
    if "return" in hints:
        hints["return"] = _awaited(hints["return"])
    return hints


def _hints_one_by_one(function: Any) -> dict[str, Any]:
    inner = inspect.unwrap(getattr(function, "__func__", function))
    names = {**vars(typing), **getattr(inner, "__globals__", {})}
    hints: dict[str, Any] = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        try:
            hints[name] = eval(annotation, names) if isinstance(annotation, str) else annotation
        except Exception:
            continue
    return hints


def _awaited(annotation: Any) -> Any:
    """The result of a function that returns an awaitable."""
    origin = get_origin(annotation)
    if inspect.isclass(origin) and issubclass(origin, Awaitable):
        return (get_args(annotation) or (Any,))[-1]
    return annotation
