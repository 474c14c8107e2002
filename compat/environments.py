"""Virtual environments for the programs that docket is tested with, made once and kept in a folder that git ignores."""

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
    """A virtual environment with these requirements. With `ours`, it depends on the metadata of this repository too."""

    name: str
    requirements: tuple[str, ...]
    ours: bool = False

    @property
    def python(self) -> Path:
        return FOLDER / self.name / ("Scripts" if os.name == "nt" else "bin") / "python"

    def prepare(self) -> Path:
        """Returns the interpreter of the environment and makes the environment first if it is missing or out of date.

        Raises IndexUnreachable if there is no package index, InstallFailed for any other reason.
        """
        stamp = FOLDER / self.name / "installed"
        if not stamp.exists() or stamp.read_text("utf-8") != self._fingerprint():
            print(f"installing {self.name} ...", flush=True)
            shutil.rmtree(FOLDER / self.name, ignore_errors=True)
            venv.create(FOLDER / self.name, with_pip=True)
            self._install()
            stamp.write_text(self._fingerprint(), "utf-8")
        return self.python

    def _install(self) -> None:
        command = [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            done = subprocess.run(
                [*command, *self.requirements],
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS,
                cwd=ROOT,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InstallFailed(f"{self.name} is not installed after {INSTALL_SECONDS} s") from error
        if done.returncode != 0:
            said = done.stderr or done.stdout
            if any(words in said for words in UNREACHABLE):
                raise IndexUnreachable(f"no package index can be reached, so {self.name} cannot be installed")
            raise InstallFailed(f"{self.name} cannot be installed: {said.strip()[-2000:]}")

    def _fingerprint(self) -> str:
        """The requirements, the Python version and our own metadata: another of them needs another environment."""
        parts = [sys.version, *self.requirements]
        if self.ours:
            for file in ("pyproject.toml", "compat/pydocket/pyproject.toml"):
                parts.append(ROOT.joinpath(file).read_text("utf-8"))
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()
