"""The embedded engine: a Valkey or Redis server that docket starts and stops.

`memory_engine(name)` serves `memory://name`: it is temporary and ends with this process.
`FolderEngine(folder)` serves `embedded:///folder`: it keeps its data and is shared by every process
that names the folder. Both return an address to which the caller connects.
"""

from docket.storage.embedded.binary import find_server
from docket.storage.embedded.errors import EngineError
from docket.storage.embedded.folder import FolderEngine
from docket.storage.embedded.memory import memory_engine

from .server_commands import EngineAddress

__all__ = ["EngineAddress", "EngineError", "FolderEngine", "find_server", "memory_engine"]
