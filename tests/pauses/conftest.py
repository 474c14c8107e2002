from __future__ import annotations

import pytest

from docket import Docket

from .recorder import Recorder, registered


@pytest.fixture
def recorder(docket: Docket) -> Recorder:
    return registered(docket)
