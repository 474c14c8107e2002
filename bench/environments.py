"""A virtual environment per system, made once and kept in a folder that git ignores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.systems import ROOT, System

LONGEST_INSTALL_SECONDS = 600
VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


class InstallFailed(Exception):
    """The system could not be installed; the text is the end of the installer's output."""


class NotInstalled(InstallFailed):
    """A program that the system needs is not on this machine, so the system is left out."""


@dataclass(frozen=True)
class Environment:
    """`packages` is the folder of a system in another language."""

    python: Path
    versions: dict[str, str]
    packages: Path | None = None


def prepare(
    systems: Iterable[System], folder: Path, *, renew: bool, report: Callable[[str], None]
) -> dict[str, Environment | InstallFailed]:
    """An environment for each system, or the reason why there is none. With `renew`, all are
    created again with the newest releases."""
    folder.mkdir(parents=True, exist_ok=True)

    def one(system: System) -> Environment | InstallFailed:
        try:
            return _prepare(system, folder / system.name, renew=renew, report=report)
        except InstallFailed as error:
            report(f"{system.name}: {error}")
            return error

    systems = list(systems)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return dict(zip([system.name for system in systems], pool.map(one, systems), strict=True))


def _prepare(system: System, folder: Path, *, renew: bool, report: Callable[[str], None]) -> Environment:
    if system.program is not None:
        return _prepare_program(system, system.program, folder, renew=renew, report=report)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / "installed.json"
    wanted = _wanted(system)
    if not renew and stamp.exists() and json.loads(stamp.read_text("utf-8"))["wanted"] == wanted:
        return Environment(python, json.loads(stamp.read_text("utf-8"))["versions"])
    report(f"installing {system.name} …")
    shutil.rmtree(folder, ignore_errors=True)
    _install(folder, python, system.requirements)
    versions: dict[str, str] = json.loads(_run([str(python), "-c", VERSIONS, *system.packages]))
    stamp.write_text(json.dumps({"wanted": wanted, "versions": versions}), "utf-8")
    return Environment(python, versions)


def _prepare_program(
    system: System, program: str, folder: Path, *, renew: bool, report: Callable[[str], None]
) -> Environment:
    """A system in another language. The Python of this process runs the adapter's Python half."""
    if shutil.which(program) is None or (system.requirements and shutil.which("npm") is None):
        raise NotInstalled(f"{program} is not installed on this machine")
    if not system.requirements:
        return Environment(Path(sys.executable), {program: _run([program, "--version"]).split()[-1]}, folder)
    found = [folder / "node_modules" / package / "package.json" for package in system.packages]
    if renew or not all(path.exists() for path in found):
        report(f"installing {system.name} …")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *system.requirements])
    versions = {path.parent.name: json.loads(path.read_text("utf-8"))["version"] for path in found}
    return Environment(Path(sys.executable), versions, folder)


def _wanted(system: System) -> list[str]:
    """What an environment depends on: another Python
    or other requirements need another environment."""
    ours = ROOT.joinpath("pyproject.toml").read_text("utf-8") if "-e" in system.requirements else ""
    return [sys.version, *system.requirements, ours]


def _install(folder: Path, python: Path, requirements: tuple[str, ...]) -> None:
    if _uv_works():
        _run(["uv", "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run(["uv", "pip", "install", "--quiet", "--python", str(python), *requirements])
    else:
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*pip, *requirements])


def _uv_works() -> bool:
    try:
        return subprocess.run(["uv", "--version"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_INSTALL_SECONDS, cwd="/", check=False
        )
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(f"not installed after {LONGEST_INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise InstallFailed(f"not installed: {lines[-1] if lines else 'no reason given'}")
    return done.stdout
