# ruff: noqa: F401, F821, RUF100
"""The types of the page, and a file of keys."""

import base64
from pathlib import Path


class OutOfStock(Exception): ...


@dataclass
class Receipt:
    number: int


Path("keys").write_text("2026-11:" + base64.b64encode(bytes(32)).decode() + "\n")
os.environ["DOCKET_SIGNING_KEYS_FILE"] = "keys"
