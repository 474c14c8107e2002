"""Virtual environments for the programs that docket is tested
with, made once and kept in a folder that git ignores."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".clients"
INSTALL_SECONDS = 900
# An installer that cannot reach its index says one of these. Any other failure is a failure.
UNREACHABLE = (
    "Could not resolve host",
    "Failed to establish a new connection",
    "Network is unreachable",
    "Temporary failure in name resolution",
    "ConnectTimeoutError",
    "Connection refused",
    "No route to host",
    "Could not fetch URL",
)


class IndexUnreachable(Exception):
    """No package index answers, so nothing can be installed."""


class InstallFailed(Exception):
    """The installer gave up for another reason; the text is its last words."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment with these requirements. `ours`:
    this repository is among them, so it follows the sources."""

    name: str
    requirements: tuple[str, ...]
    ours: bool = False

    @property
    def python(self) -> Path:
        return FOLDER / self.name / ("Scripts" if os.name == "nt" else "bin") / "python"

    def prepare(self) -> Path:
        """Returns the interpreter of the environment and makes
        the environment first if it is missing or out of date.

        Raises IndexUnreachable if there is no package index, InstallFailed for any other reason.
        """
        if self._needs(self._metadata(), "installed"):
            print(f"installing {self.name} ...", flush=True)
            shutil.rmtree(FOLDER / self.name, ignore_errors=True)
            venv.create(FOLDER / self.name, with_pip=True)
            self._install(*self.requirements)
            self._note(self._metadata(), "installed")
            self._note(self._sources(), "sources")
        elif self._has_a_copy and self._needs(self._sources(), "sources"):
            self._install("--no-deps", "--force-reinstall", ".")
            self._note(self._sources(), "sources")
        return self.python

    def _install(self, *arguments: str) -> None:
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=INSTALL_SECONDS, cwd=ROOT, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise InstallFailed(f"{self.name} is not installed after {INSTALL_SECONDS} s") from error
        if done.returncode != 0:
            said = done.stderr or done.stdout
            if any(words in said for words in UNREACHABLE):
                raise IndexUnreachable(f"no package index can be reached, so {self.name} cannot be installed")
            raise InstallFailed(f"{self.name} cannot be installed: {said.strip()[-2000:]}")

    def _needs(self, fingerprint: str, stamp: str) -> bool:
        file = FOLDER / self.name / stamp
        return not file.exists() or file.read_text("utf-8") != fingerprint

    def _note(self, fingerprint: str, stamp: str) -> None:
        (FOLDER / self.name / stamp).write_text(fingerprint, "utf-8")

    def _metadata(self) -> str:
        """The requirements, the Python version and our own
        metadata: another of them needs another environment."""
        files = [ROOT / "pyproject.toml", ROOT / "compat" / "pydocket" / "pyproject.toml"] if self.ours else []
        return _fingerprint([sys.version, *self.requirements], files)

    @property
    def _has_a_copy(self) -> bool:
        """Whether the environment has a copy of our sources;
        in editable form it has the sources themselves."""
        return "." in self.requirements

    def _sources(self) -> str:
        return _fingerprint([], sorted(ROOT.glob("src/docket/**/*.[lp][uy]*")))


def _fingerprint(texts: list[str], files: list[Path]) -> str:
    return hashlib.sha256(
        b"\n".join([*(text.encode() for text in texts), *(file.read_bytes() for file in files)])
    ).hexdigest()


# What the probe needs on both sides.
EXTRAS = ("opentelemetry-sdk>=1.30", "py-key-value-aio[memory]>=0.3")
PYDOCKET = Environment("pydocket", ("pydocket==0.27.*", *EXTRAS))
