"""Access control lists: the rules that docket needs,
and the explanation of a refusal (docs/servers.md)."""

from __future__ import annotations

import enum
import re
from functools import cache
from importlib.resources import files

from redis.exceptions import NoPermissionError, ResponseError

from docket.errors import NotPermitted

from .keys import Keys, bytes_text
from .scripts import failed_at, load

# Commands whose rule names the subcommand, too.
_WITH_SUBCOMMAND = ("CLIENT", "CLUSTER", "PUBSUB", "XGROUP", "XINFO")
_CALL = re.compile(r"call\(\s*'([A-Z]+)'(?:,\s*'([A-Z]+)')?")


class AclRole(enum.Enum):
    """The role of a user of the server. A worker may also do what a producer does, since tasks
    schedule tasks; a producer may also do what an observer does."""

    OBSERVER = "observer"
    PRODUCER = "producer"
    WORKER = "worker"


# Scripts for observers. What some of them would also write is not needed for their answer, and an
# observer may not write it.
_READING = (
    *("census", "count_by_function", "count_foreign", "count_letters", "find_tasks"),
    *("follow_strikes", "list_fleet", "read_declarations", "sample_tasks"),
    *("get", "get_letter", "list_audit", "list_chains", "list_finished", "list_letters", "list_limits"),
    *("list_windows", "next_due", "pauses", "read_statistics"),
    *("unknown_functions", "upcoming", "why"),
)
_WRITING_WORDS = {"set"}
_SCHEDULING = (
    *(
        "audit",
        "cancel",
        "clear",
        "discard_letters",
        "cancel_many",
        "edit_letter",
        "enqueue",
        "enqueue_new",
        "fail_unknown",
    ),
    *("import_tasks", "pause", "progress", "reschedule", "resume", "retry_letters", "revive_chains", "settings"),
    *("store_payload", "strike"),
)
# Commands that docket sends without a script.
_SENT_BY_OBSERVERS = (
    *("ping", "select", "info", "eval", "evalsha", "cluster|slots"),
    *("subscribe", "unsubscribe", "psubscribe", "punsubscribe", "pubsub|numsub"),
    *("get", "mget", "hget", "hscan", "xrevrange", "zrange", "pttl"),
)
# The last three: the careful form of a script (docs/design/damaged-data.md).
_SENT_BY_PRODUCERS = (
    *("set", "del", "hgetall", "type", "xlen", "xrange", "zscan", "wait"),
    *("rename", "pexpire", "hdel"),
)
# Commands that only newer servers have. Other servers refuse a rule that names them, so the rules
# do not: a script asks the server whether it may send them, and does without if not.
_OF_NEW_SERVERS = {"msetex"}
_SENT_BY_WORKERS = (*("client|id", "client|unblock", "pexpire", "xreadgroup", "xinfo|consumers", "zmscore", "zrem"),)


@cache
def commands(role: AclRole) -> tuple[str, ...]:
    """The commands that a user needs, in the words of ACL rules, sorted."""
    found = {*_SENT_BY_OBSERVERS, *_in_scripts(_READING)} - _WRITING_WORDS
    if role is not AclRole.OBSERVER:
        found |= {*_SENT_BY_PRODUCERS, *_in_scripts(_SCHEDULING)}
    if role is AclRole.WORKER:
        found |= {*_SENT_BY_WORKERS, *_in_scripts(_all_scripts())}
    return tuple(sorted(found - _OF_NEW_SERVERS))


def rules(role: AclRole, keys: Keys) -> str:
    """The rules for `ACL SETUSER` and for a file of users, without the state and the password of
    the user."""
    allowed = " ".join(f"+{command}" for command in commands(role))
    return f"resetkeys {key_rule(keys)} resetchannels {channel_rules(keys)} -@all {allowed}"


def key_rule(keys: Keys) -> str:
    """The rule for all keys of a docket."""
    return f"~{_pattern(keys.prefix)}:*"


def channel_rules(keys: Keys) -> str:
    """The rules for all channels of a docket. The second one is the pattern of the event tap: a
    server permits a pattern only if it is among the rules, letter for letter."""
    return f"&{_pattern(keys.channels)}* &{bytes_text(keys.any_task_channel[1])}"


def called_in(code: str) -> tuple[str, ...]:
    """The commands that this code of a script calls."""
    return tuple(sorted(_called(code)))


def _in_scripts(names: tuple[str, ...]) -> set[str]:
    return {command for name in names for command in _called(_code(load(name).source))}


def _called(text: str) -> set[str]:
    return {
        (f"{command}|{sub}" if command in _WITH_SUBCOMMAND else command).lower() for command, sub in _CALL.findall(text)
    }


def _code(source: str) -> str:
    return "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("--"))


def _all_scripts() -> tuple[str, ...]:
    names = [file.name for file in (files("docket.storage") / "lua").iterdir()]
    return tuple(sorted(name.removesuffix(".lua") for name in names if name.endswith(".lua")))


def _pattern(text: str) -> str:
    """The text as a pattern that matches only itself. Rules are separated by spaces, so a space
    becomes a `?`, which matches any letter."""
    escaped = "".join(f"\\{letter}" if letter in "\\*?[]^-" else letter for letter in text)
    return re.sub(r"\s", "?", escaped)


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
        return _missing(where, user, f"run {_shown_command(command[1])}", f"+{command[1]}")
    if _SOME_COMMAND.search(text):
        called = _called_by(error)
        needed = " or ".join(_shown_command(command) for command in called) or "a command of a script"
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


def _called_by(error: BaseException) -> tuple[str, ...]:
    """Before 7.2, Redis does not name the command that a script may not call, but its line."""
    failed = failed_at(error)
    return called_in(failed[1].text) if failed is not None else ()


def _shown_command(command: str) -> str:
    return command.replace("|", " ").upper()
