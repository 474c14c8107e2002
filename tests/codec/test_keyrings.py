"""The keys of a docket: what a file of keys may contain, and what errors say."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from docket import Docket, Keyring

KEY = base64.b64encode(b"k" * 32).decode()


def test_the_first_key_signs() -> None:
    keyring = Keyring.from_text(f"# keys of the shop\n\nnew:{KEY}\n old : {KEY}\n".replace(" old : ", "old: "))

    assert keyring.ids == ("new", "old")
    assert keyring.secret("old") == b"k" * 32


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at least one key"),
        ("# nothing\n", "at least one key"),
        (KEY, "line 1 is not a key: a key is id:base64"),
        (f"a:{KEY}\na:{KEY}", "line 2: there are two keys with the id 'a'"),
        ("a:not base64!", "line 1: key 'a' is not base64"),
        ("a:" + base64.b64encode(b"short").decode(), "key 'a' has 5 bytes"),
        ("a:" + base64.b64encode(b"k" * 65).decode(), "key 'a' has 65 bytes"),
        (f"a b:{KEY}", "'a b' is not the id of a key"),
        (f"{'i' * 33}:{KEY}", "is not the id of a key"),
    ],
)
def test_a_file_that_is_not_a_list_of_keys_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)

    with pytest.raises(ValueError, match=problem) as raised:
        Docket(signing=file)
    assert str(file) in str(raised.value)
    assert KEY not in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing-here: the signing keys cannot be read"):
        Docket(signing=str(tmp_path / "nothing-here"))


def test_a_file_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"a:{KEY}")
    os.chmod(file, 0o666)

    with pytest.raises(ValueError, match="everybody may write"):
        Docket(signing=file)


def test_a_keyring_does_not_show_its_keys() -> None:
    keyring = Keyring({"a": b"secret" * 6})

    assert repr(keyring) == "<Keyring a>"
    assert "secret" not in str(vars(Docket(signing=keyring)))


def test_encryption_needs_keys() -> None:
    with pytest.raises(ValueError, match="encrypt=True needs keys"):
        Docket(encrypt=True)
