"""The type of a task's result, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Result_co = TypeVarWithDefault("Result_co", covariant=True, default=Any)
else:
    # Type checkers alone need the default, which `typing` has from Python 3.13 on.
    Result_co = TypeVar("Result_co", covariant=True)

__all__ = ["Result_co"]
