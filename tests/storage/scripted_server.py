"""A server that says what a test tells it to say, where no real one would."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hiredis
import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

Words = list[bytes]

_INFO = b"redis_version:7.2.0\r\n"


def client_of(url: str) -> Any:
    library: Any = aioredis
    return library.Redis.from_url(url, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0))


def plainly(words: Words) -> bytes:
    """What a real server would say, of the little that is asked here."""
    match words:
        case [b"ECHO", text]:
            return b"$%d\r\n%s\r\n" % (len(text), text)
        case [b"INFO", *_]:
            return b"$%d\r\n%s\r\n" % (len(_INFO), _INFO)
        case [b"SUBSCRIBE", *channels]:
            return b"".join(b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(name), name) for name in channels)
        case [b"PING"]:
            return b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
        case _:
            return b"+OK\r\n"


class ScriptedServer:
    """Each connection is answered by the next of `manners`,
    the last ones plainly. An async context manager."""

    def __init__(self) -> None:
        self.manners: list[Callable[[Words], bytes | None]] = []
        self.heard: list[Words] = []
        self.connections = 0
        self._folder = Path(tempfile.mkdtemp(prefix="storage-", dir="/tmp"))
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"unix://{self._folder / 's'}"

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_unix_server(self._serve, self._folder / "s")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()
        shutil.rmtree(self._folder)

    def hang_up(self) -> None:
        """Closes all connections."""
        for writer in self._writers:
            writer.close()

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        manner = self.manners.pop(0) if self.manners else plainly
        writer.transport.set_protocol(_Conversation(self, writer, manner))


class _Conversation(asyncio.Protocol):
    def __init__(
        self, scripted_server: ScriptedServer, writer: asyncio.StreamWriter, manner: Callable[[Words], bytes | None]
    ) -> None:
        self._scripted_server = scripted_server
        self._writer = writer
        self._manner = manner
        self._requests = hiredis.Reader(notEnoughData=self)

    def data_received(self, data: bytes) -> None:
        """An answer of None hangs up."""
        self._requests.feed(data)
        while (words := self._requests.gets()) is not self:
            self._scripted_server.heard.append(words)
            answer = self._manner(words)
            if answer is None:
                self._writer.close()
                return
            self._writer.transport.write(answer)
