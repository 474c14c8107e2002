"""Finds the node to connect to: the node that serves a docket's hash slot in a cluster, or the
master that the sentinels name.

All keys of a docket are in one hash slot, so docket keeps plain connections to one node and
searches again when that node is the wrong one. These searches are rare and block; code in the event
loop runs them in a thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, Protocol, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from . import threads
from .urls import Address, Kind

NodeAddress = tuple[str, int]
T = TypeVar("T")


class Nodes(Protocol):
    """Finds nodes. The methods raise the errors of redis-py."""

    def slot(self, key: bytes) -> int:
        """The hash slot of a key. All keys of a slot are on one node."""
        ...

    def locate(self, patience: float) -> NodeAddress:
        """A node that answers."""
        ...

    def find(self, slot: int, patience: float) -> NodeAddress:
        """The node that serves a hash slot."""
        ...

    def any(self) -> NodeAddress | None:
        """A node that has answered before, or None."""
        ...


def nodes_of(address: Address, options: Mapping[str, Any]) -> Nodes | None:
    """None if the address is that of a single server."""
    if address.kind is Kind.CLUSTER:
        return ClusterNodes(options, tls=address.tls)
    if address.kind is Kind.SENTINEL:
        login = {**address.sentinel_options, **_only(options, "ssl_")}
        return SentinelNodes(address.sentinels, address.service, login, tls=address.tls)
    return None


class ClusterNodes:
    def __init__(self, options: Mapping[str, Any], *, tls: bool) -> None:
        self._options = {k: v for k, v in options.items() if k in _LOGIN or k.startswith("ssl_")}
        self._tls = tls
        self._known: list[NodeAddress] = [(options.get("host") or "localhost", int(options.get("port") or 6379))]
        # The answer of CLUSTER SLOTS: first slot, last slot, primary, replicas.
        self._slots: list[list[Any]] = []

    def slot(self, key: bytes) -> int:
        return key_slot(key)

    def locate(self, patience: float) -> NodeAddress:
        def question(address: NodeAddress, seconds: float) -> Any:
            return ask(address, seconds, self._options, self._tls, "CLUSTER", "SLOTS")

        try:
            address, self._slots = first_answer(self._known, question, patience, _FINAL)
        except NoAnswer as error:
            trouble = error.__cause__
            raise RedisConnectionError(f"no node of the cluster answers; the last one: {trouble}") from trouble
        self._learn(address)
        return address

    def find(self, slot: int, patience: float) -> NodeAddress:
        asked = self.locate(patience)
        for first, last, primary, *_ in self._slots:
            if first <= slot <= last:
                return self._address(primary, asked)
        raise RedisConnectionError(f"no node of the cluster serves slot {slot}")

    def any(self) -> NodeAddress:
        return random.choice(self._known)

    def _learn(self, asked: NodeAddress) -> None:
        """Remembers the node that answered, then all other nodes. Nodes that are gone come last,
        since they may come back."""
        found = [self._address(node, asked) for _, _, *nodes in self._slots for node in nodes]
        self._known = list(dict.fromkeys([asked, *found, *self._known]))[:100]

    def _address(self, node: Sequence[Any], asked: NodeAddress) -> NodeAddress:
        """A node that does not know its own host gets the host at which it answered."""
        return _text(node[0] or b"") or asked[0], int(node[1])


class SentinelNodes:
    def __init__(
        self, sentinels: Sequence[NodeAddress], service: str, options: Mapping[str, Any], *, tls: bool
    ) -> None:
        self._sentinels = list(sentinels)
        self._service = service
        self._options = options
        self._tls = tls

    def slot(self, key: bytes) -> int:
        return 0

    def locate(self, patience: float) -> NodeAddress:
        return self.find(0, patience)

    def find(self, slot: int, patience: float) -> NodeAddress:
        def question(address: NodeAddress, seconds: float) -> Any:
            words = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            found = ask(address, seconds, self._options, self._tls, *words)
            if not found:
                raise RedisError(f"there is no master {self._service!r}")
            return found

        try:
            address, found = first_answer(self._sentinels, question, patience, AuthenticationError)
        except NoAnswer as error:
            trouble = error.__cause__
            raise RedisConnectionError(f"no sentinel names a master; the last one: {trouble}") from trouble
        # Next time the sentinel that answered goes first.
        self._sentinels = [address, *(other for other in self._sentinels if other != address)]
        return _text(found[0]), int(found[1])

    def any(self) -> None:
        return None


_LOGIN = ("username", "password", "credential_provider")
_FINAL = (AuthenticationError, AuthorizationError, ResponseError)


class NoAnswer(Exception):
    """No address answered in time. The cause is the last error."""


def first_answer(
    addresses: Sequence[NodeAddress],
    question: Callable[[NodeAddress, float], T],
    patience: float,
    final: type[Exception] | tuple[type[Exception], ...],
) -> tuple[NodeAddress, T]:
    """Returns the first address that answers, and its answer, within `patience` seconds even if
    several addresses are silent.

    It asks the next address when one has failed or was silent for its share of the time. It raises
    an error of the `final` types at once.
    """
    deadline = time.monotonic() + patience
    share = patience / (len(addresses) + 1)
    waiting, asked = list(addresses), dict[Future[T], NodeAddress]()
    trouble: Exception = RedisConnectionError("no address is known")
    while (waiting or asked) and (left := deadline - time.monotonic()) > 0:
        if waiting:
            address = waiting.pop(0)
            # Half for the connection and half for the answer: their own time-out errors say more
            # than an error of this function would.
            asked[threads.start(question, address, left * 0.45)] = address
        done, _ = wait(asked, share if waiting else left, FIRST_COMPLETED)
        for answer in done:
            address = asked.pop(answer)
            try:
                return address, answer.result()
            except final:
                raise
            except (RedisError, OSError) as error:
                trouble = error
    if asked:
        trouble = RedisTimeoutError("no answer in time")
    raise NoAnswer from trouble


def ask(address: NodeAddress, patience: float, options: Mapping[str, Any], tls: bool, *words: str) -> Any:
    client: Any = redis.Redis(
        host=address[0],
        port=address[1],
        socket_timeout=patience,
        socket_connect_timeout=patience,
        protocol=2,
        ssl=tls,
        retry=Retry(NoBackoff(), 0),
        **options,
    )
    with client:
        return client.execute_command(*words)


def _only(options: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.startswith(prefix)}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
