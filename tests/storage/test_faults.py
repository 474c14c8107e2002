"""What a server says, in the words of its release, becomes one of docket's errors."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from docket.model.errors import ServerFull, ServerUnsuitable
from docket.storage.faults import PASSING, ServerUnavailable, translate

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
    assert isinstance(error, PASSING)
    assert said in str(error)


@pytest.mark.parametrize(
    "said", ["WRONGTYPE Operation against a key holding the wrong kind of value", "ERR unknown command"]
)
def test_a_refusal_that_stays_is_the_servers_fault(said: str) -> None:
    for where in ("", OLD + "-"):
        error = translate(ResponseError(where + said), "redis://here")
        assert isinstance(error, ServerUnsuitable)
        assert not isinstance(error, PASSING)
