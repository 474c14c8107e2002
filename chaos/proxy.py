"""A TCP proxy in front of a server, which can go silent,
vanish, hold up subscriptions, and carry little."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

# For as many as may knock at once: what does not fit into
# the kernel's queue is delayed for seconds, or reset.
ROOM = 128
# A link that carries little takes turns between its connections, this many bytes at a time.
TURN = 8192


class Upstream(Protocol):
    """The server behind the proxy: the path of its socket."""

    socket: Path


@dataclass(eq=False)
class Link:
    """One connection through the proxy."""

    client: asyncio.StreamWriter
    upstream: asyncio.StreamWriter
    frozen: bool = False
    subscribes: bool = False
    runs_script: bool = False
    # The beginning of a command whose end has not come yet.
    incomplete: bytes = b""
    pumps: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def close(self) -> None:
        for writer in (self.client, self.upstream):
            writer.close()


def packed(*words: bytes) -> bytes:
    """A command as it goes over the wire."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole commands in these bytes, and the beginning of the next one."""
    commands: list[bytes] = []
    start = 0
    while (end := end_of_command(data, start)) is not None:
        commands.append(data[start:end])
        start = end
    return commands, data[start:]


def end_of_command(data: bytes, start: int) -> int | None:
    at = data.find(b"\r\n", start)
    if at < 0:
        return None
    words, at = int(data[start + 1 : at]), at + 2
    for _ in range(words):
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        at = line + 2 + int(data[at + 1 : line]) + 2
    return at if at <= len(data) else None


class Proxy:
    """Forwards everything until it is told otherwise. An async context manager."""

    def __init__(self, server: Upstream) -> None:
        self._server = server
        self._links: set[Link] = set()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._fillers: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._refusing = False
        self.subscriptions = asyncio.Event()
        self.subscriptions.set()
        self.refuses_subscriptions = False
        # How many answers of scripts get lost from now on.
        self.answers_to_cut = 0
        # How many requests with scripts the network keeps from now on: their connections end, and
        # `deliver_kept` delivers them.
        self.requests_to_keep = 0
        self.kept: list[bytes] = []
        # The error that each script answers with from now on, instead of running.
        self.refusal: bytes | None = None
        self.refused = 0
        self.messages = asyncio.Event()
        self.messages.set()
        # For all connections together, each way.
        self.bytes_per_second: float | None = None
        # Seconds by which each way is late: True is towards the server.
        self.delays: dict[bool, float] = {}
        self._turns = {True: asyncio.Lock(), False: asyncio.Lock()}
        self.attempts: list[float] = []
        # A path that carries small packets only: connections with larger ones get stuck. Likewise
        # with these bytes in them.
        self.largest: int | None = None
        self.swallowed: bytes | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def __aenter__(self) -> Proxy:
        self._listener.setblocking(False)
        # So that what the link does not carry waits at its sender.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * TURN)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(ROOM)
        self.port = self._listener.getsockname()[1]
        self._accept()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._stop_accepting()
        self._listener.close()
        pumps = [pump for link in self._links for pump in link.pumps] + list(self._accepting)
        self.break_all()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    def freeze(self) -> None:
        """Connections that are there stay open and carry nothing more; new ones work."""
        for link in self._links:
            link.frozen = True

    def vanish(self) -> None:
        """As if the cable were pulled: nothing passes, and nobody can connect any more."""
        self.freeze()
        self._stop_accepting()
        # Once its queue is full, the kernel drops whatever else knocks.
        self._listener.listen(0)
        for _ in range(4):
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", self.port))
            self._fillers.append(filler)

    def reappear(self) -> None:
        """The old connections are dead; new ones work."""
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        self._listener.listen(ROOM)
        self._accept()

    def refuse(self, refusing: bool) -> None:
        """Every connection is closed, also each new one, as long as it refuses."""
        self._refusing = refusing
        if refusing:
            self.break_all()

    def break_all(self, *, subscriptions_only: bool = False) -> None:
        for link in list(self._links):
            if link.subscribes or not subscriptions_only:
                link.close()

    async def deliver_kept(self) -> None:
        """Delivers the requests that the network has kept. Nobody gets the answers."""
        kept, self.kept = self.kept, []
        reader, writer = await asyncio.open_unix_connection(str(self._server.socket))
        try:
            for request in kept:
                writer.write(request)
            # The server answers in order: after this answer it has read all requests.
            writer.write(packed(b"ECHO", b"all delivered"))
            await reader.readuntil(b"all delivered")
        finally:
            writer.close()

    def _refused(self, link: Link, data: bytes) -> bytes:
        """The commands, changed: each script in them answers with the refusal. The server says it,
        so that the answers to the other commands of the connection keep their order."""
        commands, link.incomplete = split(link.incomplete + data)
        refusal = self.refusal
        for i, command in enumerate(commands):
            if refusal is not None and b"EVALSHA" in command[:40]:
                self.refused += 1
                commands[i] = packed(b"EVAL", b"return redis.error_reply(ARGV[1])", b"0", refusal[1:].strip())
        return b"".join(commands)

    def _accept(self) -> None:
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._knock)

    def _stop_accepting(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()

    def _knock(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.attempts.append(time.monotonic())
            if self._refusing:
                connection.close()
                continue
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(connection))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
            # A task that is cancelled before it begins closes nothing by itself.
            task.add_done_callback(lambda _, connection=connection: connection.close())

    async def _serve(self, connection: socket.socket) -> None:
        client_reader, client_writer = await asyncio.open_connection(sock=connection)
        try:
            reader, writer = await asyncio.open_unix_connection(str(self._server.socket))
        except (OSError, asyncio.CancelledError):
            client_writer.close()
            return
        link = Link(client_writer, writer)
        self._links.add(link)
        link.pumps = [
            asyncio.create_task(self._pump(link, client_reader, writer, outbound=True)),
            asyncio.create_task(self._pump(link, reader, client_writer, outbound=False)),
        ]
        try:
            await asyncio.wait(link.pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._links.discard(link)
            link.close()
            for pump in link.pumps:
                pump.cancel()
            await asyncio.gather(*link.pumps, return_exceptions=True)
            for end in (client_writer, writer):
                with contextlib.suppress(OSError):
                    await end.wait_closed()

    async def _pump(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outbound: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536 if self.bytes_per_second is None else TURN):
                if self.bytes_per_second is not None:
                    async with self._turns[outbound]:
                        await asyncio.sleep(len(data) / self.bytes_per_second)
                if self.delays.get(outbound):
                    await asyncio.sleep(self.delays[outbound])
                if outbound and link.client.is_closing():
                    # Its sender has reset the connection: nothing that is still under way arrives.
                    return
                if outbound and b"SUBSCRIBE" in data[:40] and b"UNSUBSCRIBE" not in data[:40]:
                    link.subscribes = True
                    if self.refuses_subscriptions:
                        return
                    await self.subscriptions.wait()
                if not outbound and link.subscribes:
                    # Cleared: what is published arrives late.
                    await self.messages.wait()
                if outbound:
                    link.runs_script = b"EVALSHA" in data[:40]
                    if link.runs_script and self.requests_to_keep and not split(data)[1]:
                        self.requests_to_keep -= 1
                        self.kept.append(data)
                        return
                elif link.runs_script and self.answers_to_cut:
                    # The server has done what it was asked to;
                    # the connection ends instead of the answer.
                    self.answers_to_cut -= 1
                    return
                if outbound and (self.refusal is not None or link.incomplete):
                    data = self._refused(link, data)
                too_large = outbound and self.largest is not None and len(data) > self.largest
                if too_large or (outbound and self.swallowed is not None and self.swallowed in data):
                    link.frozen = True
                if link.frozen:
                    # Whoever waits for this waits for ever.
                    await asyncio.Event().wait()
                writer.write(data)
                await writer.drain()
