"""The command line and `docket worker` sign, verify and encrypt like the application."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from docket import Docket
from docket.cli.support.docket_options import DocketOptions
from docket.cli.support.failures import WrongUsage
from docket.cli.support.worker_options import WorkerOptions


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text(f"a:{base64.b64encode(b'k' * 32).decode()}\n")
    return file


def test_the_options_make_the_payloads_of_the_docket(keys: Path) -> None:
    docket = DocketOptions(settings={"signing": str(keys), "accept": "unsigned, pickle", "encrypt": True}).load()

    assert docket.signing is not None
    assert docket.signing.ids == ("a",)
    assert docket.accept == {"unsigned", "pickle"}
    assert docket.payloads.encrypts


def test_the_options_of_a_worker_reach_its_worker_processes(keys: Path) -> None:
    options = WorkerOptions(DocketOptions(settings={"signing": str(keys), "accept": "unsigned", "encrypt": True}))

    environment = options.environment()
    assert environment["DOCKET_SIGNING_KEYS_FILE"] == str(keys)
    assert environment["DOCKET_ACCEPT"] == "unsigned"
    assert environment["DOCKET_ENCRYPT"] == "True"


app = Docket("shop", "memory://shop")


def test_the_options_override_the_settings_of_the_application(keys: Path) -> None:
    docket = DocketOptions(app=f"{__name__}:app", settings={"signing": str(keys)}).load()

    assert docket is app
    assert docket.payloads.signs


@pytest.mark.parametrize("settings", [{"codec": "yaml"}, {"accept": "nothing"}, {"signing": "missing"}])
def test_a_wrong_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(WrongUsage, match="yaml|nothing|missing"):
        DocketOptions(settings=settings).load()
