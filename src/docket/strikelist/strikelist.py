"""The strike list of a process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from docket.codec import Payloads
from docket.storage.client.urls import ServerKind, parse
from docket.storage.keys import Keys
from docket.storage.server import Server
from docket.storage.subscriptions import Subscriptions

from .conditions import TaskToMatch
from .in_force import ParameterStrikes, StrikeFollower, StrikesInForce, as_strike, by_function, by_parameter
from .instructions import LiteralOperator, Operator, Restore, Strike, StrikeInstruction
from .stored import RuleValues, StoredRules

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

logger: logging.Logger = logging.getLogger("docket.strikelist")

Condition = Callable[[Any], bool]


class StrikeList:
    """The strikes in force. An async context manager.

    With a `url` the list follows the docket of that name: all processes apply a strike within
    milliseconds. Without a `url` the list is local to this process. `strike` and `restore` return
    when the server has stored the change and this process applies it.
    """

    def __init__(
        self,
        url: str | None = None,
        name: str = "strikelist",
        enable_internal_instrumentation: bool = False,
        credential_provider: CredentialProvider | None = None,
        *,
        pickled_strikes: bool = False,
        payloads: Payloads | None = None,
    ) -> None:
        """With `pickled_strikes`, values of any type can be struck. Every process that is to apply
        them needs it, and then whoever can write to the server can run code in that process.
        `payloads` signs and verifies the strikes: the `payloads` of the docket."""
        self.url = url
        self.name = name
        self.enable_internal_instrumentation = enable_internal_instrumentation
        self.is_empty: bool = True
        self._credentials = credential_provider
        self._keys = Keys(name, cluster=url is not None and parse(url).kind is ServerKind.CLUSTER)
        # A local list stores nothing, so nobody else writes what it reads.
        values = RuleValues(pickled=pickled_strikes or url is None)
        self._in_force = StrikesInForce(name, StoredRules(Strike, values, payloads or Payloads()), self._note_emptiness)
        self._conditions: list[Condition] = []
        self._stack: AsyncExitStack | None = None
        self._follower: StrikeFollower | None = None

    # Connecting

    async def connect(self) -> None:
        """Opens a connection and loads the strikes in force. Does nothing for a local list."""
        if self.url is None:
            return
        async with AsyncExitStack() as stack:
            server = Server(self.url, self._credentials, entry_seconds=0.0, name=self.name)
            await stack.enter_async_context(server)
            subscriptions = Subscriptions(server, self.name)
            stack.push_async_callback(subscriptions.aclose)
            stack.push_async_callback(self._stop_following)
            keys = Keys(self.name, database=server.database, cluster=server.is_cluster)
            await self.follow(server, subscriptions, keys)
            self._stack = stack.pop_all()

    async def follow(self, server: Server, subscriptions: Subscriptions, keys: Keys) -> None:
        """Follows the strikes of a docket over existing connections.

        Returns after the first attempt to load the strikes. After a transient error the attempt is
        repeated in the background until it succeeds. If the server is known to be unreachable, this
        method does not wait for it.
        """
        assert self._follower is None, "this strike list is already connected"
        # The server names them if it refuses them.
        server.keys = keys
        self._follower = StrikeFollower(self.name, self._in_force, server, subscriptions, keys)
        if server.is_reached:
            await self._follower.wait_tried()

    async def close(self) -> None:
        """Closes the connection. The strikes stay in force on the server."""
        stack, self._stack = self._stack, None
        if stack is not None:
            await stack.aclose()
        else:
            await self._stop_following()

    async def _stop_following(self) -> None:
        follower, self._follower = self._follower, None
        if follower is not None:
            await follower.stop()
            self._in_force.replace_all(0, {})

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def wait_for_strikes_loaded(self) -> None:
        """Returns when this process applies all strikes that were in force at the start."""
        if self._follower is not None:
            await self._follower.wait_loaded()

    # Instructions

    async def strike(
        self,
        function: str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Strikes a function, values of a parameter, or values of a parameter of one function.

        Raises ValueError if both names are missing, the operator is unknown or the value of
        `between` is not a pair. Raises Unserializable if the value is of a type that a strike does
        not store, and TooLong if it is longer than 4,096 bytes.
        """
        await self.send_instruction(Strike(function, parameter, Operator.read(operator), value))

    async def restore(
        self,
        function: str | None = None,
        parameter: str | None = None,
        operator: Operator | LiteralOperator = "==",
        value: Any = None,
    ) -> None:
        """Removes the strike with equal arguments. Does nothing if there is no such strike."""
        await self.send_instruction(Restore(function, parameter, Operator.read(operator), value))

    async def send_instruction(self, instruction: StrikeInstruction) -> None:
        """Sends an instruction to all processes of the docket, and applies it in this process."""
        instruction.check()
        if self.url is None:
            self.update(instruction)
            return
        follower = self._connected()
        ids, stored = self._in_force.ids(instruction)
        version, changed = await follower.store.write([(id, stored) for id in ids])
        if not changed:
            # Another process may have made the strike, and its message has not arrived yet.
            await follower.load()
            ids, stored = self._in_force.ids(instruction)
            version, changed = await follower.store.write([(id, stored) for id in ids])
        if changed:
            strike = as_strike(instruction)
            self._in_force.apply(version, [(id, strike) for id in ids])

    async def discard(self, id: str) -> bool:
        """Removes a rule by its id, whatever it holds. Returns whether there was one."""
        return await self._connected().discard(id)

    def _connected(self) -> StrikeFollower:
        if self._follower is None:
            raise RuntimeError("this strike list is not connected: use `async with`, or connect() first")
        return self._follower

    def update(self, instruction: StrikeInstruction) -> None:
        """Applies an instruction in this process only."""
        if not instruction.is_void:
            self._in_force.update(instruction)

    # Matching

    def is_stricken(self, target: TaskToMatch | Mapping[str, Any] | str) -> bool:
        """Whether a task, a mapping of parameters to values, or a whole function is struck."""
        if isinstance(target, str):
            return self._in_force.index.has_function(target)
        if isinstance(target, Mapping):
            return self._in_force.index.match_values(target)
        return self._in_force.index.match_call(target) is not None or any(
            _holds(condition, target) for condition in self._conditions
        )

    def add_condition(self, condition: Condition) -> None:
        """Strikes the tasks for which the condition is true, in this process only."""
        self._conditions.append(condition)
        self._note_emptiness()

    def remove_condition(self, condition: Condition) -> None:
        """Removes a condition. Raises ValueError if it was not added."""
        self._conditions.remove(condition)
        self._note_emptiness()

    @property
    def in_effect(self) -> list[Strike]:
        """The strikes that this process applies."""
        return list(self._in_force.by_id.values())

    @property
    def by_id(self) -> dict[str, Strike]:
        """The strikes that this process applies, by the id of their rule, as a copy."""
        return dict(self._in_force.by_id)

    @property
    def unreadable(self) -> dict[str, str]:
        """Rules that this process cannot read and does not apply: id → reason. `discard` removes
        them."""
        return dict(self._in_force.unreadable)

    @property
    def task_strikes(self) -> dict[str, ParameterStrikes]:
        """The strikes on single functions, as a copy:
        `{function: {parameter: {(operator, value), …}}}`.

        A function that is struck completely has an empty
        mapping. Values that cannot be hashed are left out.
        """
        return by_function(self._in_force.by_id.values())

    @property
    def parameter_strikes(self) -> ParameterStrikes:
        """The strikes on a parameter of every function, as a copy:
        `{parameter: {(operator, value), …}}`."""
        return by_parameter(self._in_force.by_id.values())

    @property
    def prefix(self) -> str:
        """The prefix of the names of the keys of the list."""
        return self._keys.prefix

    @property
    def strike_key(self) -> str:
        """The server key that stores the strikes."""
        return self._keys.strikes

    def _note_emptiness(self) -> None:
        self.is_empty = not self._in_force.by_id and not self._conditions


def _holds(condition: Condition, target: Any) -> bool:
    try:
        return bool(condition(target))
    except Exception:
        logger.exception("a condition of the strike list failed; it does not match")
        return False
