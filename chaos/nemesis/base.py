"""One kind of fault."""

from __future__ import annotations

from .arena import Arena


class FaultKind:
    """A kind of fault. A subclass is a class in a file of this folder and a line in `FAULTS`."""

    name: str = ""
    # How often it comes up in one round of all faults.
    times: int = 1

    async def inflict(self, arena: Arena) -> None:
        """Does harm, writes it down (`arena.fault`), and heals it."""
        raise NotImplementedError
