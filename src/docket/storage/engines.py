"""Loads the embedded engine when a URL asks for it: dockets on other servers do not need its
modules."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docket.errors import ServerUnsuitable

if TYPE_CHECKING:
    from .embedded import EngineAddress, FolderEngine


def memory_engine(name: str) -> EngineAddress:
    return _embedded(f"memory://{name}").memory_engine(name)


def folder_engine(folder: Path) -> FolderEngine:
    return _embedded(f"embedded://{folder}").FolderEngine(folder)


def _embedded(url: str) -> Any:
    try:
        return importlib.import_module("docket.storage.embedded")
    except ModuleNotFoundError as error:
        raise ServerUnsuitable(
            f"{url}: the embedded engine cannot run on this system, which has no {error.name}; name a server with redis://…"
        ) from error
