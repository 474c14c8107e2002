"""Exceptions to a rule, each with its reason. An
exception that is no longer needed is an error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Exceptions:
    def __init__(self, rule: str, reasons: Mapping[str, str]) -> None:
        self._rule = rule
        self._unused = set(reasons)
        self._reasons = reasons

    def allow(self, name: str) -> bool:
        self._unused.discard(name)
        return name in self._reasons

    def unneeded(self) -> Iterator[str]:
        for name in sorted(self._unused):
            yield f"{name}: keeps the rule now; remove it from the exceptions in lint/{self._rule}"
