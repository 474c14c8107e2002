"""Random bytes in every place that is read: no error but docket's own."""

import contextlib
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docket.errors import DocketError

from .damage import PLACES, Place, damaged

# In twelve places: 20,400 cases.
CASES = 1_700


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_damaged_bytes_raise_no_error_but_our_own(place: Place) -> None:
    @settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.one_of(st.binary(max_size=200), st.integers(0, 2**64).map(lambda seed: _damaged(place, seed))))
    def check(data: bytes) -> None:
        with contextlib.suppress(DocketError):
            place.read(data)

    check()


def _damaged(place: Place, seed: int) -> bytes:
    return damaged(place.sound, random.Random(seed))
