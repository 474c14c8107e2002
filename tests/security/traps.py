"""Payloads that show whether somebody has decoded
them, and an attacker with a client of its own."""

import pickle
from pathlib import Path
from typing import Any


class Trap:
    """Whoever unpickles it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)

    @property
    def pickled(self) -> bytes:
        return pickle.dumps(self)

    @property
    def sprang(self) -> bool:
        return self.path.exists()
