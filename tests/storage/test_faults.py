"""What a server says, in the words of its release, becomes one of docket's errors."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from docket.errors import TRANSIENT, ServerFull, ServerUnsuitable
from docket.storage.client.faults import ServerUnavailable, translate

OLD = (
    "Error running script (call to f_4c9943745933dc18d487e96bcdc3f1f44991f058): "
    "@user_script:272: user_script:272: @user_script: 270: "
)


@pytest.mark.parametrize("where", ["", OLD + "-"], ids=["plain", "in a script, before Redis 7"])
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", ServerFull),
        ("READONLY You can't write against a read only replica.", ServerUnavailable),
        ("MISCONF Redis is configured to save RDB snapshots, but it is unable to persist on disk.", ServerUnavailable),
    ],
)
def test_a_refusal_that_passes_is_recognised(where: str, said: str, kind: type[Exception]) -> None:
    error = translate(ResponseError(where + said), "redis://here")
    assert isinstance(error, kind)
    assert isinstance(error, TRANSIENT)
    assert said in str(error)


NEW = " script: 4c9943745933dc18d487e96bcdc3f1f44991f058, on @user_script:272."


@pytest.mark.parametrize(
    "said",
    [
        "ERR upstream failure",
        "ERR something that no release of today says",
        "ERR 'moved' is not in the proxy's list",
        "QUOTA the daily quota of this plan is used up",
        "Script killed by user with SCRIPT KILL...",
        OLD + "Script killed by user with SCRIPT KILL.",
        "ERR Error running script (call to f_1): @user_script:1: Script killed by user with SCRIPT KILL...",
        "ERR Script killed by user with SCRIPT KILL." + NEW,
        "THROTTLED come back later" + NEW,
    ],
)
def test_words_that_nobody_knows_are_waited_out(said: str) -> None:
    error = translate(ResponseError(said), "redis://here")
    assert isinstance(error, TRANSIENT)
    assert said in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "ERR Error compiling script (new function): user_script:1: unexpected symbol near '='",
        "ERR user_script:12: attempt to index a nil value" + NEW,
        OLD + "attempt to index a nil value",
        "ERR value is not a valid float" + NEW,
        "WRONGTYPE Operation against a key holding the wrong kind of value" + NEW,
        "ERR ACL failure in script. User default has no permissions to run the 'xadd' command" + NEW,
        "ERR DB index is out of range",
        "ERR unknown command 'EVALSHA', with args beginning with: 'abc'",
        "ERR This instance has cluster support disabled",
        "DENIED Redis is running in protected mode",
        "NOPERM this user has no permissions to run the 'evalsha' command",
    ],
)
def test_what_only_a_change_of_settings_mends_ends_the_worker(said: str) -> None:
    error = translate(ResponseError(said), "redis://here")
    assert isinstance(error, ServerUnsuitable)
    assert not isinstance(error, TRANSIENT)


@pytest.mark.parametrize(
    "said", ["WRONGTYPE Operation against a key holding the wrong kind of value", "ERR unknown command"]
)
def test_a_refusal_that_stays_is_the_servers_fault(said: str) -> None:
    for where in ("", OLD + "-"):
        error = translate(ResponseError(where + said), "redis://here")
        assert isinstance(error, ServerUnsuitable)
        assert not isinstance(error, TRANSIENT)
