"""A build that is broken on purpose, by changes to a process before it starts. The product has no
switch for this."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from chaos.nemesis import FaultKind
from docket.storage import scripts


class BrokenBuild:
    """One mistake, and the load and the faults that show it soonest. A subclass is a class in a
    file of this folder and a line in `BUILDS`."""

    name: str = ""
    faults: Sequence[FaultKind] = ()
    # The kinds of work, by name.
    work: Sequence[str] = ("plain", "with a result")
    rate: float = 40.0
    seconds: float = 12.0
    gap_seconds: float = 1.5
    clocks: Sequence[float] = (0.0,)
    # Whether the mistake is in the producers, not in the workers.
    in_producers: bool = False

    def apply(self) -> None:
        """Changes this process. Called in each worker, or in each producer, before it connects."""
        raise NotImplementedError


def change_script(file: str, old: str, new: str) -> None:
    """Changes the text of a script or a part, wherever it is used."""
    read: Callable[[str], str] = vars(scripts)["_read"]
    assert old in read(file), f"{file} no longer has the text to change: {old}"

    def changed(path: str) -> str:
        return read(path).replace(old, new) if path == file else read(path)

    setattr(scripts, "_read", changed)  # noqa: B010
    for cached in vars(scripts).values():
        if hasattr(cached, "cache_clear"):
            cached.cache_clear()


def change_function(function: Callable[..., Any], changed: Callable[..., Any]) -> None:
    """Changes a function in every module of docket that has imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("docket"):
            for attribute, value in list(vars(module).items()):
                if value is function:
                    setattr(module, attribute, changed)
