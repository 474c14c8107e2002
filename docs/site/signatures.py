"""Signatures of the reference show `int` for `Annotated[int, Option("Run …")]`: the option is for
the command line and its tables (src/docket/model/options.py)."""

from __future__ import annotations

from typing import Any

from griffe import Expr, ExprCall, ExprSubscript, ExprTuple, Extension, Function


class BareTypes(Extension):
    def on_function(self, *, func: Function, **kwargs: Any) -> None:
        for parameter in func.parameters:
            parameter.annotation = bare(parameter.annotation)


def bare(annotation: str | Expr | None) -> str | Expr | None:
    """The type without an `Option`. Other annotations stay as they are."""
    match annotation:
        case ExprSubscript(
            left=left, slice=ExprTuple(elements=[type, ExprCall(function=Expr(canonical_name="Option")), *_])
        ) if str(left) == "Annotated":
            return type
        case _:
            return annotation
