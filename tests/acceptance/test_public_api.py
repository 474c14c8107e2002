"""The public API changes only on purpose: public_api.txt
lists every public name with its signature."""

import difflib

from .public_api import COMMAND, FILE, describe


def test_every_public_name_has_the_signature_that_is_written_down() -> None:
    written, found = FILE.read_text(), describe()

    changes = "\n".join(difflib.unified_diff(written.splitlines(), found.splitlines(), lineterm="", n=0))
    assert written == found, f"The public API has changed. If that is meant, run `{COMMAND}`.\n{changes}"
