"""The instructions of operators: strike and restore, and the rules of pauses."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from docket.model.texts import escaped

LiteralOperator = Literal["==", "!=", ">", ">=", "<", "<=", "between"]
"""How a strike or a pause compares an argument."""

# What a rule does, in messages and labels.
Direction = Literal["strike", "restore", "pause"]

_SHOWN = 200


class Operator(str, enum.Enum):  # noqa: UP042 - a StrEnum would show as its bare value
    """The comparison of an argument with the value of a strike or a pause."""

    EQUAL = "=="
    NOT_EQUAL = "!="
    GREATER_THAN = ">"
    GREATER_THAN_OR_EQUAL = ">="
    LESS_THAN = "<"
    LESS_THAN_OR_EQUAL = "<="
    BETWEEN = "between"

    __hash__ = str.__hash__

    @classmethod
    def read(cls, text: Operator | str) -> Operator:
        try:
            return cls(text)
        except ValueError:
            known = ", ".join(operator.value for operator in cls)
            raise ValueError(f"{text!r} is not an operator of a strike or a pause: use one of {known}") from None


@dataclass
class StrikeInstruction:
    """An instruction about a function (all its tasks), a parameter (of any function), or a
    parameter of one function. An empty name means the same as None."""

    function: str | None = None
    parameter: str | None = None
    operator: Operator = Operator.EQUAL
    value: Any = None

    direction: ClassVar[Direction]

    def __post_init__(self) -> None:
        self.operator = Operator.read(self.operator)
        self.function, self.parameter = self.function or None, self.parameter or None
        if self.parameter is None:
            # Without a parameter there is no comparison. Equal instructions must have equal fields.
            self.operator, self.value = Operator.EQUAL, None

    @property
    def target(self) -> tuple[str | None, str | None, Operator]:
        """Function, parameter and operator."""
        return self.function, self.parameter, self.operator

    @property
    def is_void(self) -> bool:
        """Whether it names neither a function nor a parameter, and so matches no task."""
        return self.function is None and self.parameter is None

    def check(self) -> None:
        """Raises ValueError if the instruction is not valid."""
        if self.is_void:
            raise ValueError(f"a {self.direction} needs a function, a parameter, or both")

    def call_repr(self) -> str:
        """The calls that it matches, as text: `function(parameter > 5)`."""
        function = escaped(self.function or "*")
        if self.parameter is None:
            return f"{function}(...)"
        return f"{function}({escaped(self.parameter)} {self.operator.value} {shown(self.value)})"

    def labels(self) -> dict[str, str]:
        """The labels of spans that describe the rule."""
        labels: dict[str, str] = {}
        if self.function:
            labels["docket.task"] = self.function
        if self.parameter:
            labels["docket.parameter"] = self.parameter
            labels["docket.operator"] = self.operator.value
            labels["docket.value"] = shown(self.value)
        return labels


@dataclass
class Strike(StrikeInstruction):
    """Cancels matching tasks instead of running them."""

    direction: ClassVar[Direction] = "strike"

    def check(self) -> None:
        super().check()
        self._check_pair()

    def _check_pair(self) -> None:
        if self.operator is Operator.BETWEEN and not _is_pair(self.value):
            raise ValueError(
                f"{self.direction} {self.call_repr()}: the value of 'between' must be a pair such as (1, 5)"
            )


@dataclass
class PauseRule(Strike):
    """Holds matching tasks until it is resumed. Without a function and a parameter it is about all
    tasks of the docket."""

    direction: ClassVar[Direction] = "pause"

    def check(self) -> None:
        self._check_pair()


@dataclass
class Restore(StrikeInstruction):
    """Removes an equal strike."""

    direction: ClassVar[Direction] = "restore"


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes) and len(cast(Sequence[Any], value)) == 2


def shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
