"""Servers that a test may kill, pause, starve and misconfigure."""

from __future__ import annotations

from docket.testing.servers import ServerProcess


class Server(ServerProcess):
    """One server, on a socket; with `tcp` also on a port."""

    def start_loading_slowly(self) -> None:
        """Starts it with the data it has, a tenth of a second for each key."""
        self.start("--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024", wait=False)

    def memory_used(self) -> int:
        with self.client() as client:
            return int(client.info("memory")["used_memory"])
