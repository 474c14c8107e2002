"""The distribution that stands in for `pydocket`
brings this package and no other of the same name."""

import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A folder with another project's `docket`, newer than ours, as an index may have it."""
    with zipfile.ZipFile(tmp_path / "docket-99.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("docket/__init__.py", "")
        wheel.writestr("docket-99.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: docket\nVersion: 99.0\n")
        wheel.writestr("docket-99.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("docket-99.0.dist-info/RECORD", "")
    return tmp_path


def test_it_refers_to_this_repository_directly() -> None:
    requirements = importlib.metadata.requires("pydocket") or []

    assert any(
        requirement.startswith("docket@ file:") or "docket @ file:" in requirement for requirement in requirements
    )


@pytest.mark.parametrize("arguments", [["./compat/pydocket"], ["./compat/pydocket", "."]])
def test_a_strangers_docket_is_not_installed_in_its_place(stranger: Path, tmp_path: Path, arguments: list[str]) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
    done = subprocess.run(
        [*command, "--ignore-installed", "--find-links", str(stranger), "--report", str(report), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    chosen = {item["metadata"]["name"]: item for item in json.loads(report.read_text("utf-8"))["install"]}

    assert chosen["pydocket"]["metadata"]["version"] == "0.27.0"
    assert chosen["docket"]["metadata"]["version"] != "99.0"
    assert chosen["docket"]["download_info"]["url"].startswith("file:")
