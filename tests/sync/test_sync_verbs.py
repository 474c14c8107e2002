"""The sync docket has every verb that operators have in the async one."""

from __future__ import annotations

import inspect

import pytest

from docket.dead import DeadLetters
from docket.operator_verbs import OperatorVerbs
from docket.sync import Docket, verbs
from lint import sync_verbs


def test_the_written_verbs_are_those_of_the_async_docket() -> None:
    assert list(sync_verbs.check()) == []


@pytest.mark.parametrize(("theirs", "ours"), [(OperatorVerbs, Docket), (DeadLetters, verbs.DeadLetters)])
def test_a_sync_verb_takes_what_the_async_one_takes(theirs: type, ours: type) -> None:
    names = [name for name, value in vars(theirs).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert names
    for name in names:
        parameters = inspect.signature(getattr(theirs, name)).parameters
        assert inspect.signature(getattr(ours, name)).parameters == parameters, name
        assert inspect.getdoc(getattr(ours, name)) == inspect.getdoc(getattr(theirs, name)), name
