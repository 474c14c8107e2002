"""Annotations on parameters that say whether an argument may be logged."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sized
from typing import Annotated, Any, Self, get_args, get_origin


class Annotation:
    """Base class of marks for parameters: `Annotated[str, Logged]` or
    `Annotated[str, Logged()]`."""

    @classmethod
    def annotated_parameters(cls, signature: inspect.Signature) -> Mapping[str, Self]:
        """The marks of this kind on a signature, by parameter."""
        found: dict[str, Self] = {}
        for name, parameter in signature.parameters.items():
            if get_origin(parameter.annotation) is not Annotated:
                continue
            for mark in get_args(parameter.annotation)[1:]:
                if isinstance(mark, cls):
                    found[name] = mark
                elif isinstance(mark, type) and issubclass(mark, cls):
                    found[name] = mark()
        return found


class Logged(Annotation):
    """The argument may appear in logs: in full, or only its length."""

    def __init__(self, length_only: bool = False) -> None:
        self.length_only = length_only

    def format(self, argument: Any) -> str:
        """The text that may be logged. An argument whose
        `repr` fails must not fail the task."""
        try:
            return self._format(argument)
        except Exception as error:
            return f"<{type(argument).__name__} that cannot be shown: {type(error).__name__}>"

    def _format(self, argument: Any) -> str:
        if not self.length_only or not isinstance(argument, Sized):
            return repr(argument)
        length = f"len {len(argument)}"
        if isinstance(argument, (dict, set, frozenset)):
            return f"{{{length}}}"
        return f"({length})" if isinstance(argument, tuple) else f"[{length}]"
