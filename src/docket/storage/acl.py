"""The ACL rules of a server for the three kinds of users of a docket (docs/servers.md).

The commands follow from the sources of the scripts, so a script that gets a new command changes the
rules with it.
"""

from __future__ import annotations

import enum
import re
from functools import cache
from importlib.resources import files

from .keys import Keys, bytes_text
from .scripts import load

# Commands whose rule names the subcommand, too.
_WITH_SUBCOMMAND = ("CLIENT", "CLUSTER", "PUBSUB", "XGROUP", "XINFO")
_CALL = re.compile(r"call\(\s*'([A-Z]+)'(?:,\s*'([A-Z]+)')?")


class AclRole(enum.Enum):
    """What a user of the server does. A worker may also do what a producer does, since tasks
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
