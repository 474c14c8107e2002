"""Finds the node to connect to: the node that serves a docket's hash slot in a cluster, or the
master that the sentinels name.

All keys of a docket are in one hash slot, so docket keeps plain connections to one node and
searches again when that node is the wrong one. These searches are rare and block; code in the event
loop runs them in a thread.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple, Protocol, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from docket._aio import start_in_thread

from .urls import Address, ServerKind

# How long the other sentinels may take after the first answer.
_OTHERS_SECONDS = 1.0
# The same if these have not answered the last question either.
_SILENT_SECONDS = 0.1

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
    if address.kind is ServerKind.CLUSTER:
        return ClusterNodes(options, tls=address.tls)
    if address.kind is ServerKind.SENTINEL:
        login = {**address.sentinel_options, **_only(options, "ssl_")}
        return SentinelNodes(
            address.sentinels, address.service, login, tls=address.tls, server_options=_server_login(options)
        )
    return None


class ClusterNodes:
    def __init__(self, options: Mapping[str, Any], *, tls: bool) -> None:
        self._options = _server_login(options)
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


# The flags of a primary that the sentinels replace, or are about to.
_CHANGING = (b"o_down", b"failover_in_progress")


class SentinelAnswer(NamedTuple):
    """The answer of a sentinel: the last fail-over that it knows, the primary, and whether that one
    is about to be replaced."""

    epoch: int
    primary: NodeAddress
    is_changing: bool


class SentinelView(NamedTuple):
    """An answer of a sentinel, and whom the sentinel knows: its own id,
    the other sentinels by their ids, and whether each replica is down.
    The id is empty, and `replicas` None, if this user may not ask."""

    answer: SentinelAnswer
    id: bytes
    others: dict[bytes, NodeAddress]
    replicas: dict[NodeAddress, bool] | None


class Agreement(NamedTuple):
    """The replicas of a primary, as the sentinels that agree on it see them: how many they may
    promote now, and whether there are others, which may come back."""

    replicas: int
    others: bool


class SentinelNodes:
    """Asks all sentinels, since one that has not heard of a fail-over names the old primary, which
    may be back and believe that it is the primary. Each fail-over has a number, the configuration
    epoch: the sentinel with the highest one is up to date."""

    def __init__(
        self,
        sentinels: Sequence[NodeAddress],
        service: str,
        options: Mapping[str, Any],
        *,
        tls: bool,
        server_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.addresses: Sequence[NodeAddress] = list(sentinels)
        self.options = options
        self.tls = tls
        self.service = service
        # The login for the primary and its replicas.
        self._server_options = server_options or {}
        # The newest answer so far.
        self._newest: SentinelAnswer | None = None
        # Those that have not answered the last question.
        self._silent = set[NodeAddress]()
        self._silent_others = set[NodeAddress]()
        self._silent_replicas = set[NodeAddress]()

    def slot(self, key: bytes) -> int:
        return 0

    def locate(self, patience: float) -> NodeAddress:
        return self.find(0, patience)

    def find(self, slot: int, patience: float) -> NodeAddress:
        answers = self._ask_all(self._question, patience)
        newest = max(answers, key=lambda answer: answer.epoch)
        if self._newest is None or newest.epoch >= self._newest.epoch or len(answers) == len(self.addresses):
            # All sentinels together are believed in any case: they may have been set up again.
            self._newest = newest
        return self._newest.primary

    def agree_on(self, primary: NodeAddress, patience: float) -> Agreement | None:
        """None unless more than half of the sentinels answer, all of them name this primary, and
        none of them is about to replace it. The sentinels that these know are asked, too."""
        views = self._ask_all(self._view, patience)
        are_most = 2 * len(views) > len(self.addresses)
        known = {id: address for view in views for id, address in view.others.items()}
        missing = known.keys() - {view.id for view in views}
        if missing:
            others = {known[id] for id in missing}.difference(self.addresses)
            views += self._answers(others, self._view, patience, self._silent_others)
            missing -= {view.id for view in views}
            are_most = are_most and len(missing) < len(views)
        if not are_most or any(view.answer.primary != primary or view.answer.is_changing for view in views):
            return None
        is_down: dict[NodeAddress, bool] = {}
        for view in views:
            for replica, down in (view.replicas or {}).items():
                is_down[replica] = down and is_down.get(replica, True)
        if missing or len(views) < len(self.addresses):
            # A sentinel that does not answer may have promoted one of them.
            roles = self._answers(is_down, self._role, patience, self._silent_replicas)
            if "master" in roles:
                return None
        up = sum(not down for down in is_down.values())
        return Agreement(up, up < len(is_down) or any(view.replicas is None for view in views))

    def _answers(
        self,
        addresses: Iterable[NodeAddress],
        question: Callable[[NodeAddress, float], T],
        patience: float,
        silent: set[NodeAddress],
    ) -> list[T]:
        """Those that arrive soon."""
        try:
            return all_answers(addresses, question, min(patience, 2 * _OTHERS_SECONDS), AuthenticationError, silent)
        except (NoAnswer, AuthenticationError):
            return []

    def _role(self, address: NodeAddress, seconds: float) -> Any:
        # redis-py makes a dictionary of it.
        return ask(address, seconds, self._server_options, self.tls, "INFO", "replication").get("role")

    def _ask_all(self, question: Callable[[NodeAddress, float], T], patience: float) -> list[T]:
        try:
            return all_answers(self.addresses, question, patience, AuthenticationError, self._silent)
        except NoAnswer as error:
            trouble = error.__cause__
            raise RedisConnectionError(f"no sentinel names a master; the last one: {trouble}") from trouble

    def any(self) -> None:
        return None

    def _question(self, address: NodeAddress, seconds: float) -> SentinelAnswer:
        with _client(address, seconds, self.options, self.tls) as client:
            return self._answer(client)

    def _view(self, address: NodeAddress, seconds: float) -> SentinelView:
        with _client(address, seconds, self.options, self.tls) as client:
            answer = self._answer(client)
            try:
                id: bytes = client.execute_command("SENTINEL", "MYID")
                others = map(_fields, client.execute_command("SENTINEL", "SENTINELS", self.service))
                replicas = map(_fields, client.execute_command("SENTINEL", "REPLICAS", self.service))
            except (ResponseError, AuthorizationError):
                return SentinelView(answer, b"", {}, None)
        return SentinelView(
            answer,
            id,
            {other[b"runid"]: _location(other) for other in others if other.get(b"runid")},
            {_location(replica): b"s_down" in replica.get(b"flags", b"") for replica in replicas},
        )

    def _answer(self, client: Any) -> SentinelAnswer:
        """The epoch is 0 if this user may not ask for it. It is
        asked for first: then the address is at least as new."""
        try:
            fields = _fields(client.execute_command("SENTINEL", "MASTER", self.service))
        except (ResponseError, AuthorizationError):
            fields = {}
        found = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        if not found:
            raise RedisError(f"there is no master {self.service!r}")
        # The sentinel that leads a fail-over names the new primary some time before its flags are
        # about that one.
        is_about_it = (fields.get(b"ip"), fields.get(b"port")) == (found[0], found[1])
        is_changing = is_about_it and any(flag in fields.get(b"flags", b"") for flag in _CHANGING)
        return SentinelAnswer(int(fields.get(b"config-epoch", 0)), (_text(found[0]), int(found[1])), is_changing)


def _fields(words: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(words[::2], words[1::2], strict=False))


def _location(fields: Mapping[bytes, bytes]) -> NodeAddress:
    return _text(fields.get(b"ip", b"")), int(fields.get(b"port", 0))


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
            asked[start_in_thread(question, address, left * 0.45)] = address
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


def all_answers(
    addresses: Iterable[NodeAddress],
    question: Callable[[NodeAddress, float], T],
    patience: float,
    final: type[Exception],
    silent: set[NodeAddress],
) -> list[T]:
    """Asks all addresses at once. Returns all answers, or those that are there a moment after the
    first one. Without any it raises an error of the type `final` if there was one, else NoAnswer.

    `silent` are those that have not answered the last time. Nobody waits for them for long, and
    this function keeps the set up to date."""
    deadline = time.monotonic() + patience
    # Half for the connection and half for the answer.
    asked = {start_in_thread(question, address, patience * 0.45): address for address in addresses}
    silent &= set(asked.values())
    answers: list[T] = []
    trouble: Exception = RedisConnectionError("none is known")
    while asked and (left := deadline - time.monotonic()) > 0:
        done, _ = wait(asked, left, FIRST_COMPLETED)
        for answer in done:
            address = asked.pop(answer)
            try:
                answers.append(answer.result())
                silent.discard(address)
            except (RedisError, OSError) as error:
                trouble = trouble if isinstance(trouble, final) else error
        if answers:
            more = _SILENT_SECONDS if silent.issuperset(asked.values()) else _OTHERS_SECONDS
            deadline = min(deadline, time.monotonic() + more)
    silent |= set(asked.values())
    if answers:
        return answers
    if isinstance(trouble, final):
        raise trouble
    raise NoAnswer from trouble if not asked else RedisTimeoutError("no answer in time")


def ask(address: NodeAddress, patience: float, options: Mapping[str, Any], tls: bool, *words: str) -> Any:
    with _client(address, patience, options, tls) as client:
        return client.execute_command(*words)


def _client(address: NodeAddress, patience: float, options: Mapping[str, Any], tls: bool) -> Any:
    return redis.Redis(
        host=address[0],
        port=address[1],
        socket_timeout=patience,
        socket_connect_timeout=patience,
        protocol=2,
        ssl=tls,
        retry=Retry(NoBackoff(), 0),
        **options,
    )


def _server_login(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _LOGIN or name.startswith("ssl_")}


def _only(options: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name.startswith(prefix)}


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
