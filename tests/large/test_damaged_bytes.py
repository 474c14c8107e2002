"""A million damaged values in every place that is read: no error but docket's own."""

import contextlib
import random

import pytest

from docket.errors import DocketError
from tests.security.damage import PLACES, Place, damaged

CASES = 1_000_000 // len(PLACES) + 1


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_damaged_bytes_raise_no_error_but_our_own(place: Place) -> None:
    chance = random.Random(1)
    for _ in range(CASES):
        with contextlib.suppress(DocketError):
            place.read(damaged(place.sound, chance))
