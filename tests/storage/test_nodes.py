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

    def __init__(
        self, answer: bytes | None, epoch: int | None = None, flags: bytes = b"master", flagged: int = 6379
    ) -> None:
        """Without an epoch it does not permit to ask for that. `flagged` is the port of the primary
        that the flags are about."""
        self._answer = answer
        number = b"%d" % (epoch or 0)
        fields = (b"ip", b"127.0.0.1", b"port", b"%d" % flagged, b"config-epoch", number, b"flags", flags)
        self._fields = b"*8\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in fields)
        if epoch is None:
            self._fields = b"-NOPERM this user has no permissions to run the 'sentinel|master' command\r\n"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.location: NodeAddress = ("127.0.0.1", self._socket.getsockname()[1])
        self._accepted: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @staticmethod
    def naming(port: int, flags: bytes = b"master", flagged: int = 0) -> tuple[bytes, int, bytes, int]:
        """The arguments of a sentinel that names this primary."""
        return ANSWER.replace(b"6379", b"%d" % port), 9, flags, flagged or port

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
                if b"CLIENT" in data:
                    connection.sendall(b"+OK\r\n" * (data.count(b"SETINFO") or 1))
                if b"SENTINEL" in data:
                    connection.sendall(self._answer or b"" if b"GET-MASTER-ADDR" in data else self._fields)

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
    # The silent ones would have minutes.
    assert nodes.find(0, 600.0) == ("127.0.0.1", 6379)


def test_the_sentinel_that_has_heard_of_the_last_fail_over_is_believed() -> None:
    """The others name the old primary until they have heard of it, too."""
    newer = ANSWER.replace(b"6379", b"6380")
    listeners = [Listener(ANSWER, 9), Listener(newer, 10), Listener(ANSWER, 9)]
    try:
        nodes = SentinelNodes([listener.location for listener in listeners], "main", {}, tls=False)
        assert nodes.find(0, 60.0) == ("127.0.0.1", 6380)
        # One that is gone takes nothing back.
        listeners.pop(1).close()
        assert nodes.find(0, 60.0) == ("127.0.0.1", 6380)
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.parametrize(
    ("others", "agree"),
    [
        ([Listener.naming(6379), Listener.naming(6379)], True),
        ([Listener.naming(6379), None], True),
        ([None, None], False),
        ([Listener.naming(6379), Listener.naming(6380)], False),
        ([Listener.naming(6379), Listener.naming(6379, b"master,failover_in_progress")], False),
        ([Listener.naming(6379), Listener.naming(6379, b"s_down,o_down,master")], False),
        # The leader of the fail-over: its flags are still about the old primary.
        ([Listener.naming(6379), Listener.naming(6379, b"o_down,failover_in_progress", flagged=6380)], True),
    ],
)
def test_a_primary_counts_if_most_sentinels_answer_and_none_replaces_it(
    others: list[tuple[bytes, int, bytes, int] | None], agree: bool
) -> None:
    listeners = [Listener(*arguments) for arguments in [Listener.naming(6379), *others] if arguments is not None]
    gone = [("127.0.0.1", 1) for arguments in others if arguments is None]
    try:
        nodes = SentinelNodes([*(listener.location for listener in listeners), *gone], "main", {}, tls=False)
        assert nodes.agree_on(("127.0.0.1", 6379), 60.0) is agree
    finally:
        for listener in listeners:
            listener.close()


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
