"""Annotations on parameters: what may be shown of an argument."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sized
from typing import Annotated, Any, Self, get_args, get_origin


class Annotation:
    """Base of marks put on parameters with `typing.Annotated`, as instances or as bare classes."""

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
    """The argument may appear in logs: in full, or only how long it is."""

    def __init__(self, length_only: bool = False) -> None:
        self.length_only = length_only

    def format(self, argument: Any) -> str:
        """The argument as it may be shown; one that cannot
        show itself must not fail the task for that."""
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
