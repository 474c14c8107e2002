"""Explains the refusal of a server whose ACL rules lack something that docket needs."""

from __future__ import annotations

import re

from redis.exceptions import NoPermissionError, ResponseError

from docket.errors import NotPermitted

from .acl import called_in, channel_rules, key_rule
from .keys import Keys
from .scripts import failed_at

# Texts of Redis 6.2, of Redis 7.0, and of Redis since 7.2 and Valkey, in this order.
_KEYS = re.compile(r"can't access at least one of the keys|one of the keys used|No permissions to access a key")
_CHANNELS = re.compile(r"can't publish to the channel|one of the channels used|No permissions to access a channel")
_COMMAND = re.compile(r"permissions to run the '([^']+)' command")
_SOME_COMMAND = re.compile(r"can't run this command")
_USER = re.compile(r"User (\S+) has no permissions")


def refusal(error: BaseException, where: str, user: str, keys: Keys | None) -> NotPermitted | None:
    """The typed error for a refusal, or None if the error is something else. `user` is for people;
    newer servers name it themselves."""
    if not isinstance(error, (NoPermissionError, ResponseError)):
        return None
    text = str(error)
    if (named := _USER.search(text)) is not None:
        user = repr(named[1])
    if _KEYS.search(text):
        rule = key_rule(keys) if keys is not None else None
        return _missing(where, user, "use the keys of the docket", rule)
    if _CHANNELS.search(text):
        rule = channel_rules(keys) if keys is not None else None
        return _missing(where, user, "use the channels of the docket", rule)
    if (command := _COMMAND.search(text)) is not None:
        return _missing(where, user, f"run {_shown(command[1])}", f"+{command[1]}")
    if _SOME_COMMAND.search(text):
        called = _called(error)
        needed = " or ".join(_shown(command) for command in called) or "a command of a script"
        return _missing(where, user, f"run {needed}", " ".join(f"+{command}" for command in called) or None)
    if isinstance(error, NoPermissionError):
        return _missing(where, user, f"do that ({text})", None)
    return None


def _missing(where: str, user: str, what: str, rule: str | None) -> NotPermitted:
    remedy = f"; its ACL rules lack {rule}" if rule is not None else ""
    error = NotPermitted(
        f"{where}: the user {user} may not {what}{remedy}. `docket acl` prints the rules that docket needs"
    )
    error.rule = rule
    return error


def _called(error: BaseException) -> tuple[str, ...]:
    """Before 7.2, Redis does not name the command that a script may not call, but its line."""
    failed = failed_at(error)
    return called_in(failed[1].text) if failed is not None else ()


def _shown(command: str) -> str:
    return command.replace("|", " ").upper()
