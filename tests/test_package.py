"""What a user gets from the installed package itself, and from its source distribution."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

import docket

ROOT = Path(__file__).parents[1]
# Folders of the repository that tests use.
NEEDED = ("src", "tests", "bench", "compat", "docs", "examples", "lint")
RELATIVE_LINK = re.compile(r"\]\((?![a-z+]+:|#)")


def test_the_package_tells_its_version_and_ships_its_types() -> None:
    assert isinstance(docket.__version__, str)
    assert files("docket").joinpath("py.typed").is_file()


def build(target: str, folder: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.iterdir()
    return built


def repository_files() -> Iterator[Path]:
    for folder in NEEDED:
        for path in (ROOT / folder).rglob("*"):
            hidden = any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(ROOT).parts)
            if path.is_file() and not hidden:
                yield path.relative_to(ROOT)


def test_the_source_distribution_has_all_that_its_tests_need(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path / "dist")) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("docket-*")
    missing = [str(path) for path in repository_files() if not (unpacked / path).is_file()]
    assert missing == []
    assert (unpacked / "mkdocs.yml").is_file()
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/test_package.py",
         "tests/benchmark", "tests/examples", "tests/acceptance/test_drop_in.py", "tests/cli/test_demo.py"],
        cwd=unpacked,
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert collected.returncode == 0, collected.stdout


def metadata_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("dist-info/METADATA"))
        return archive.read(name).decode()


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> str:
    return metadata_of(build("wheel", tmp_path_factory.mktemp("wheel")))


def test_a_package_that_the_repository_builds_links_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://git.example.com")
    monkeypatch.setenv("GITHUB_REPOSITORY", "shop/docket")
    metadata = metadata_of(build("wheel", tmp_path))
    assert "Project-URL: Source, https://git.example.com/shop/docket\n" in metadata
    assert "(https://git.example.com/shop/docket/blob/main/docs/limits.md)" in metadata


def test_a_package_that_is_built_elsewhere_names_no_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert "Project-URL" not in metadata_of(build("wheel", tmp_path))


def test_the_description_of_the_package_has_no_link_that_leads_nowhere(metadata: str) -> None:
    assert "Background tasks for Python functions" in metadata
    assert RELATIVE_LINK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert not RELATIVE_LINK.search(metadata)


def test_the_package_asks_for_releases_of_redis_py_that_are_tested(metadata: str) -> None:
    assert "Requires-Dist: redis[hiredis]<9,>=5.2" in metadata
    tested = re.search(r"for release in (.*); do", (ROOT / "tests" / "redis_py.sh").read_text())
    assert tested is not None
    assert tested[1] == "'5.2.*' '8.*'"


def test_only_releases_of_python_that_are_tested_are_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text() if (ROOT / ".github").is_dir() else None
    promised = {c.rsplit(" ", 1)[1] for c in project["classifiers"] if re.search(r"Python :: 3\.\d+$", c)}
    assert promised == {"3.11", "3.12", "3.13"}
    if workflow is not None:
        assert all(f'"{release}"' in workflow for release in [*promised, "3.14"])
