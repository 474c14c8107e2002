"""What every browser loads: small, of our own, and nothing from elsewhere."""

import gzip
import re
from pathlib import Path

import docket.web

FOLDER = Path(docket.web.__file__).parent
ASSETS = sorted(path for path in (FOLDER / "assets").iterdir() if path.is_file())
TEMPLATES = sorted((FOLDER / "templates").iterdir())
MOST_BYTES = 80_000


def test_all_assets_together_are_small() -> None:
    total = sum(len(gzip.compress(path.read_bytes(), 9)) for path in ASSETS)
    assert 0 < total <= MOST_BYTES


def test_nothing_is_loaded_from_another_host() -> None:
    for path in (*ASSETS, *TEMPLATES):
        addresses = re.findall(r"""(?:https?:)?//[a-z0-9.-]+""", path.read_text(), re.IGNORECASE)
        # The name of a language is an address, too; a comment begins with two slashes.
        found = [address for address in addresses if "www.w3.org" not in address and address.startswith("http")]
        assert found == [], path.name


def test_no_template_has_a_script_or_a_style_inside() -> None:
    """The Content-Security-Policy forbids them, so they would not work."""
    for path in TEMPLATES:
        text = path.read_text()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=", text), path.name


def test_no_template_switches_escaping_off() -> None:
    for path in TEMPLATES:
        assert not re.search(r"\|\s*safe\b|autoescape", path.read_text()), path.name


def test_our_assets_are_listed_with_their_licence() -> None:
    readme = (FOLDER / "assets" / "README.md").read_text()
    for path in ASSETS:
        assert path.name == "README.md" or f"`{path.name}`" in readme
