"""Silent nodes and sentinels cannot use up the time that there is for one that answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from docket.storage.client.nodes import Agreement, NoAnswer, NodeAddress, SentinelNodes, first_answer
from docket.testing.servers import Sentinels
from tests.waiting import eventually_blocking

ANSWER = b"*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n"


def row(*words: bytes) -> bytes:
    """An answer of these words."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Listener:
    """Accepts connections; says nothing, or the same to everybody."""

    def __init__(
        self, answer: bytes | None, epoch: int | None = None, flags: bytes = b"master", flagged: int = 6379
    ) -> None:
        """Without an epoch it does not permit to ask for that. `flagged` is the port of the primary
        that the flags are about."""
        self._answer = answer
        # What it says about the sentinels and the replicas.
        # Without an id it does not permit to ask.
        self.id = b""
        self.sentinels: list[bytes] = []
        self.replicas: list[bytes] = []
        number = b"%d" % (epoch or 0)
        self._fields = row(b"ip", b"127.0.0.1", b"port", b"%d" % flagged, b"config-epoch", number, b"flags", flags)
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
                    connection.sendall(self._reply(data))

    def _reply(self, data: bytes) -> bytes:
        if b"GET-MASTER-ADDR" in data:
            return self._answer or b""
        if b"$6\r\nMASTER" in data:
            return self._fields
        if not self.id:
            return b"-NOPERM this user has no permissions to run the 'sentinel' command\r\n"
        if b"MYID" in data:
            return b"$%d\r\n%s\r\n" % (len(self.id), self.id)
        rows = self.sentinels if b"SENTINELS" in data else self.replicas
        return b"*%d\r\n" % len(rows) + b"".join(rows)

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
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
        assert nodes.agree_on(("127.0.0.1", 6379), 60.0) == (Agreement(0, others=True) if agree else None)
    finally:
        for listener in listeners:
            listener.close()


class Service:
    """Sentinels that know each other and two replicas."""

    PRIMARY = ("127.0.0.1", 6379)

    def __init__(self, count: int) -> None:
        self.sentinels = [Listener(*Listener.naming(6379)) for _ in range(count)]
        self.replicas = [Replica(), Replica()]
        self.know_each_other()

    def know_each_other(self) -> None:
        for number, sentinel in enumerate(self.sentinels):
            sentinel.id = b"sentinel %d" % number
            sentinel.sentinels = [
                row(b"ip", b"127.0.0.1", b"port", b"%d" % other.location[1], b"runid", b"sentinel %d" % n)
                for n, other in enumerate(self.sentinels)
                if n != number
            ]
            sentinel.replicas = [replica.row(b"slave") for replica in self.replicas]

    def named(self, *numbers: int) -> SentinelNodes:
        """The nodes of a URL that names these sentinels."""
        return SentinelNodes([self.sentinels[n].location for n in numbers], "main", {}, tls=False)

    def close(self) -> None:
        for listener in (*self.sentinels, *self.replicas):
            listener.close()


class Replica(Listener):
    """A server that says its role."""

    def __init__(self) -> None:
        super().__init__(b"")
        self.role = b"slave"

    def row(self, flags: bytes) -> bytes:
        return row(b"ip", b"127.0.0.1", b"port", b"%d" % self.location[1], b"flags", flags)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := connection.recv(4096):
                if b"CLIENT" in data:
                    connection.sendall(b"+OK\r\n" * (data.count(b"SETINFO") or 1))
                if b"INFO\r\n$11" in data:
                    info = b"role:%s\r\nconnected_slaves:0" % self.role
                    connection.sendall(b"$%d\r\n%s\r\n" % (len(info), info))


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service(3)
    yield service
    service.close()


def test_a_sentinel_that_the_url_does_not_name_is_asked_too(service: Service) -> None:
    nodes = service.named(1)
    assert nodes.agree_on(service.PRIMARY, 60.0) == Agreement(2, others=False)
    service.sentinels[0].close()
    leader = service.sentinels[0] = Listener(*Listener.naming(6379, b"master,failover_in_progress"))
    service.know_each_other()
    assert nodes.agree_on(service.PRIMARY, 60.0) is None
    assert leader.connections


def test_most_of_the_sentinels_that_exist_have_to_answer(service: Service) -> None:
    nodes = service.named(1)
    service.sentinels[0].close()
    assert nodes.agree_on(service.PRIMARY, 60.0) is not None
    service.sentinels[2].close()
    assert nodes.agree_on(service.PRIMARY, 60.0) is None


@pytest.mark.parametrize("named", [(0, 1, 2), (1, 2), (1,)])
def test_a_replica_that_was_promoted_by_a_sentinel_that_does_not_answer_is_noticed(
    service: Service, named: tuple[int, ...]
) -> None:
    nodes = service.named(*named)
    service.sentinels[0].close()
    service.replicas[0].close()
    assert nodes.agree_on(service.PRIMARY, 60.0) is not None
    service.replicas[1].role = b"master"
    assert nodes.agree_on(service.PRIMARY, 60.0) is None


def test_a_replica_counts_as_down_if_all_sentinels_say_so(service: Service) -> None:
    down = service.replicas[0].row(b"s_down,slave,disconnected")
    for sentinel in service.sentinels[:2]:
        sentinel.replicas[0] = down
    assert service.named(0, 1, 2).agree_on(service.PRIMARY, 60.0) == Agreement(2, others=False)
    service.sentinels[2].replicas[0] = down
    assert service.named(0, 1, 2).agree_on(service.PRIMARY, 60.0) == Agreement(1, others=True)


def test_real_sentinels_tell_whom_they_know() -> None:
    with Sentinels() as group:
        named, *others = group.sentinels
        primary = ("127.0.0.1", group.primary.port)
        nodes = SentinelNodes([("127.0.0.1", named.port)], "main", {}, tls=False)
        assert nodes.agree_on(primary, 60.0) == Agreement(2, others=False)
        group.replicas[0].kill()
        is_known = Agreement(1, others=True)
        eventually_blocking(lambda: nodes.agree_on(primary, 60.0) == is_known, "the replica is down")
        for sentinel in others:
            sentinel.kill()
        assert nodes.agree_on(primary, 60.0) is None


def test_nobody_waits_again_for_a_sentinel_that_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    listeners = [Listener(ANSWER, 9), Listener(None)]
    try:
        addresses = [listener.location for listener in listeners]
        nodes = SentinelNodes(addresses, "main", {}, tls=False)
        assert nodes.find(0, 60.0) == ("127.0.0.1", 6379)
        # Now the others may take as long as they like, and this one is not waited for.
        monkeypatch.setattr("docket.storage.client.nodes._OTHERS_SECONDS", 3600.0)
        assert nodes.find(0, 3600.0) == ("127.0.0.1", 6379)
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
