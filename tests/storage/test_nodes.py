"""Silent nodes and sentinels cannot use up the time that there is for one that answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from docket.storage.nodes import NoAnswer, NodeAddress, SentinelNodes, first_answer
from tests.waiting import eventually_blocking

ANSWER = b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n"


class Listener:
    """Accepts connections; says nothing, or the same to everybody."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.location: NodeAddress = ("127.0.0.1", self._socket.getsockname()[1])
        self._accepted: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def connections(self) -> int:
        return len(self._accepted)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._accepted.append(connection)
            if self._answer is not None:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(4096):
                for command in (b"CLIENT", b"SENTINEL"):
                    if command in data:
                        times = data.count(b"SETINFO") or 1
                        connection.sendall(b"+OK\r\n" * times if command == b"CLIENT" else self._answer or b"")

    def close(self) -> None:
        # Closing alone would not end the `accept` of the thread: it would still take a connection.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._socket.close()
        for connection in self._accepted:
            connection.close()


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    """Seven that are silent, and one that answers."""
    listeners = [*(Listener(None) for _ in range(7)), Listener(ANSWER)]
    yield listeners
    for listener in listeners:
        listener.close()


def test_seven_silent_sentinels_before_one_that_answers_do_not_stretch_the_question(listeners: list[Listener]) -> None:
    nodes = SentinelNodes([listener.location for listener in listeners], "main", {}, tls=False)
    assert nodes.find(0, 24.0) == ("127.0.0.1", 6379)
    # The sentinel that knew is asked first now. It has half a minute before the next one is asked.
    assert nodes.find(0, 300.0) == ("127.0.0.1", 6379)
    assert listeners[0].connections == 1


def test_only_silent_sentinels_are_given_up_in_time(listeners: list[Listener]) -> None:
    nodes = SentinelNodes([listener.location for listener in listeners[:7]], "main", {}, tls=False)
    with pytest.raises(RedisConnectionError, match="no sentinel names a master"):
        nodes.find(0, 4.0)
    # The time is for all of them together, so the last one is asked before the first is given up.
    eventually_blocking(lambda: all(listener.connections for listener in listeners[:7]), "all are asked")


def test_a_refusal_is_told_at_once_if_it_is_final() -> None:
    def question(address: NodeAddress, seconds: float) -> str:
        raise AuthenticationError("wrong password")

    with pytest.raises(AuthenticationError):
        first_answer([("a", 1), ("b", 2)], question, 60.0, AuthenticationError)


def test_the_next_is_asked_as_soon_as_one_has_failed() -> None:
    asked: list[str] = []

    def question(address: NodeAddress, seconds: float) -> str:
        asked.append(address[0])
        if address[0] != "c":
            raise OSError("refused")
        return "here"

    addresses = [(name, 1) for name in "abcd"]
    assert first_answer(addresses, question, 600.0, AuthenticationError) == (("c", 1), "here")
    assert asked == ["a", "b", "c"]
    with pytest.raises(NoAnswer) as caught:
        first_answer(addresses[:2], question, 600.0, AuthenticationError)
    assert str(caught.value.__cause__) == "refused"
