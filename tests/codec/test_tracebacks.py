"""Tracebacks as text: complete, short, and without docket's own frames."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import docket
from docket.codec import Keyring, Payloads
from docket.codec.error_texts import LONGEST_TRACEBACK, cut_middle, failure_place, traceback_text
from docket.errors import PayloadRefused, TaskFailed
from docket.model.states import ExecutionState

FAILED_RUN = ("key", 7, ExecutionState.FAILED)
KEYRING = Keyring({"a": b"1" * 32})
DOCKETS = {
    "pickle": Payloads(),
    "json": Payloads("json", exceptions=[ValueError]),
    "signed": Payloads(keyring=KEYRING),
    "encrypted": Payloads(keyring=KEYRING, encrypt=True),
}


def raised(function: Callable[..., Any], *args: Any) -> BaseException:
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def text_of(function: Callable[..., Any], *args: Any) -> str:
    text = traceback_text(raised(function, *args))
    assert text is not None
    assert len(text.encode()) <= LONGEST_TRACEBACK
    return text


def _frame_of_docket() -> Callable[[Callable[[], Any]], Any]:
    file = os.path.join(os.path.dirname(docket.__file__), "worker", "runner.py")
    found: dict[str, Any] = {}
    exec(compile("def call_it(call):\n    return call()\n", file, "exec"), found)
    return found["call_it"]


# Calls its argument, in a frame that looks like one of docket's worker.
call_from_docket = _frame_of_docket()


def in_docket(call: Callable[[], Any]) -> Callable[[], Any]:
    return partial(call_from_docket, call)


def fails() -> None:
    raise ValueError("smoke")


NOT_CALLABLE: Any = 1


def test_it_shows_frames_message_and_notes() -> None:
    def noted() -> None:
        try:
            fails()
        except ValueError as error:
            error.add_note("while it burned")
            raise

    text = text_of(noted)
    assert text.startswith("Traceback (most recent call last):\n")
    assert 'raise ValueError("smoke")' in text
    assert text.endswith("ValueError: smoke\nwhile it burned")


def test_frames_of_docket_are_left_out() -> None:
    text = text_of(in_docket(fails))

    assert "in fails" in text
    assert "runner.py" not in text


def test_frames_of_docket_between_those_of_the_user_are_left_out() -> None:
    def behaviour() -> None:
        in_docket(fails)()

    text = text_of(in_docket(behaviour))
    assert "in behaviour" in text
    assert "in fails" in text
    assert "runner.py" not in text


def test_frames_of_docket_that_the_user_called_stay() -> None:
    def body() -> None:
        in_docket(NOT_CALLABLE)()

    assert "runner.py" in text_of(body)


def test_an_error_of_docket_itself_keeps_its_innermost_frame() -> None:
    error = raised(in_docket(in_docket(NOT_CALLABLE)))
    frames = error.__traceback__
    while frames is not None and "runner.py" not in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next

    assert (traceback_text(error.with_traceback(frames)) or "").count("runner.py") == 1


def test_causes_and_contexts_are_shown_in_their_order() -> None:
    def chained() -> None:
        try:
            try:
                fails()
            except ValueError as error:
                raise KeyError("second") from error
        except KeyError:
            raise TypeError("third")  # noqa: B904 - the context is the point

    text = text_of(chained)
    assert text.index("ValueError: smoke") < text.index("direct cause") < text.index("KeyError: 'second'")
    assert text.index("KeyError: 'second'") < text.index("During handling") < text.index("TypeError: third")


def test_a_suppressed_context_is_not_shown() -> None:
    def suppressed() -> None:
        try:
            fails()
        except ValueError:
            raise KeyError("alone") from None

    assert "smoke" not in text_of(suppressed)


def test_a_long_chain_keeps_its_origin_and_its_end() -> None:
    def chained() -> None:
        error: Exception = ValueError("the origin")
        for number in range(500):
            following = RuntimeError(f"link {number}")
            following.__cause__ = error
            error = following
        raise error

    text = text_of(chained)
    assert "the origin" in text
    assert "more exceptions in between" in text
    assert text.endswith("RuntimeError: link 499")


def test_a_chain_that_contains_itself_ends() -> None:
    def circle() -> None:
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        raise one

    assert "two" in text_of(circle)


def test_the_members_of_a_group_are_shown() -> None:
    def grouped() -> None:
        raise ExceptionGroup("several", [raised(fails), ExceptionGroup("inner", [KeyError("deep")])])  # type: ignore[list-item]

    text = text_of(grouped)
    assert "ExceptionGroup: several (2 sub-exceptions)" in text
    assert "1 of 2" in text
    assert "  | ValueError: smoke" in text
    assert "  |   | KeyError: 'deep'" in text


def test_of_a_large_group_only_the_first_members_are_shown() -> None:
    def grouped() -> None:
        raise ExceptionGroup("many", [ValueError(str(number)) for number in range(100_000)])

    text = text_of(grouped)
    assert "ValueError: 3" in text
    assert " more)" in text


def test_a_deep_recursion_keeps_its_beginning_and_its_end() -> None:
    def descend(depth: int) -> None:
        if not depth:
            fails()
        ascend(depth)

    def ascend(depth: int) -> None:
        descend(depth - 1)

    def begin() -> None:
        descend(200)

    text = text_of(begin)
    assert "in begin" in text
    assert "(cut)" in text
    assert text.endswith("ValueError: smoke")


def test_a_huge_message_does_not_hide_the_frames() -> None:
    def verbose() -> None:
        raise ValueError("beginning" + "x" * 10_000_000 + "end")

    text = text_of(verbose)
    assert "in verbose" in text
    assert "ValueError: beginning" in text
    assert text.endswith("xend")


def test_an_exception_that_cannot_be_shown_is_named() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise SystemExit

    def mute() -> None:
        raise Mute

    assert "Mute (its text cannot be shown: SystemExit)" in text_of(mute)


def test_an_exception_whose_attributes_raise_is_named() -> None:
    class Hostile(Exception):
        __notes__: Any = property(lambda _: 1 / 0)

    def hostile() -> None:
        raise Hostile("smoke")

    assert "Hostile: smoke" in text_of(hostile)


def test_lone_surrogates_become_escapes() -> None:
    def odd() -> None:
        raise ValueError("\ud800")

    assert text_of(odd).endswith("ValueError: \\ud800")


def test_the_position_of_a_syntax_error_is_shown() -> None:
    assert "1 +" in text_of(compile, "1 +", "typed.py", "eval")


def test_an_exception_that_was_not_raised_has_no_traceback() -> None:
    assert traceback_text(ValueError("never raised")) is None


@pytest.mark.parametrize("most", [0, 10, 100, 101, 102, 103])
def test_a_cut_text_fits_and_is_valid(most: int) -> None:
    assert len(cut_middle("ä€😀" * 1000, most).encode()) <= max(most, len("\n… (cut) …\n".encode()))


# Where it was raised


def test_the_place_is_the_innermost_function_of_the_user() -> None:
    def loads() -> None:
        json.loads("{")

    assert failure_place(raised(in_docket(loads))).endswith("<locals>.loads")


def test_an_exception_that_was_not_raised_has_no_place() -> None:
    assert failure_place(ValueError()) == ""


# In the payload


@pytest.mark.parametrize("payloads", DOCKETS.values(), ids=DOCKETS)
def test_an_exception_arrives_with_its_traceback_as_a_note(payloads: Payloads) -> None:
    sealed = payloads.seal_error(*FAILED_RUN, raised(fails))

    error = payloads.open_error(*FAILED_RUN, sealed)
    assert type(error) is ValueError
    (note,) = error.__notes__
    assert note.startswith("In the worker:\nTraceback (most recent call last):\n")
    assert "in fails" in note


@pytest.mark.parametrize("payloads", DOCKETS.values(), ids=DOCKETS)
def test_an_observer_reads_the_traceback_without_decoding_the_exception(payloads: Payloads) -> None:
    class Trap(Exception):
        def __reduce__(self) -> Any:
            return pytest.fail, ("somebody decoded it",)

    def trapped() -> None:
        raise Trap

    # The codec itself decodes once, to see whether the exception can be decoded.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytest, "fail", ValueError)
        sealed = payloads.seal_error(*FAILED_RUN, raised(trapped))

    assert "in trapped" in (payloads.open_traceback(*FAILED_RUN, sealed) or "")


@pytest.mark.parametrize("kind", ["signed", "encrypted"])
def test_a_traceback_cannot_be_forged(kind: str) -> None:
    payloads = DOCKETS[kind]
    sealed = payloads.seal_error(*FAILED_RUN, raised(fails))

    with pytest.raises(PayloadRefused):
        payloads.open_traceback(*FAILED_RUN, sealed[:-30] + b"z" * 10 + sealed[-20:])


def test_an_encrypted_traceback_cannot_be_read() -> None:
    sealed = DOCKETS["encrypted"].seal_error(*FAILED_RUN, raised(fails))

    assert b"Traceback" not in sealed
    assert b"fails" not in sealed


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not me")


@pytest.mark.parametrize("payloads", DOCKETS.values(), ids=DOCKETS)
def test_an_exception_that_cannot_be_packed_has_a_traceback(payloads: Payloads) -> None:
    def stubborn() -> None:
        raise Unpicklable("stuck")

    error = payloads.open_error(*FAILED_RUN, payloads.seal_error(*FAILED_RUN, raised(stubborn)))
    assert isinstance(error, TaskFailed)
    assert "in stubborn" in (error.traceback or "")
    assert "in stubborn" in error.__notes__[0]


def test_an_exception_whose_class_is_missing_here_has_a_traceback() -> None:
    payloads = Payloads()
    sealed = payloads.seal_error(*FAILED_RUN, raised(fails)).replace(b"\nValueError\x94", b"\nVanishedXX\x94")
    sealed = sealed.replace(b"ValueError\x94", b"VanishedXX\x94")

    error = payloads.open_error(*FAILED_RUN, sealed)
    assert isinstance(error, TaskFailed)
    assert "in fails" in error.__notes__[0]


def test_an_exception_that_refuses_notes_arrives_all_the_same() -> None:
    error = Payloads().open_error(*FAILED_RUN, Payloads().seal_error(*FAILED_RUN, raised(refuse)))

    assert isinstance(error, Frozen)


class Frozen(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def refuse() -> None:
    raise Frozen


def test_an_exception_that_travels_twice_has_one_traceback() -> None:
    payloads = Payloads()
    first = payloads.open_error(*FAILED_RUN, payloads.seal_error(*FAILED_RUN, raised(fails)))

    def waits() -> None:
        raise first

    (note,) = payloads.open_error(*FAILED_RUN, payloads.seal_error(*FAILED_RUN, raised(waits))).__notes__
    assert "in waits" in note
    assert "in fails" in note


@pytest.mark.parametrize("payloads", DOCKETS.values(), ids=DOCKETS)
def test_a_traceback_is_left_out_where_it_does_not_fit(payloads: Payloads) -> None:
    sealed = payloads.seal_error(*FAILED_RUN, raised(fails), 100)

    error = payloads.open_error(*FAILED_RUN, sealed)
    assert "smoke" in str(error)
    assert not hasattr(error, "__notes__")


def test_earlier_releases_and_other_clients_can_unpickle_the_exception() -> None:
    sealed = Payloads().seal_error(*FAILED_RUN, raised(fails))

    error = pickle.loads(Payloads().result_body(*FAILED_RUN, sealed, is_error=True))
    assert repr(error) == "ValueError('smoke')"


def test_an_exception_of_an_earlier_release_has_no_traceback() -> None:
    sealed = Payloads().seal_error(*FAILED_RUN, ValueError("smoke"))

    assert Payloads().open_traceback(*FAILED_RUN, sealed) is None
