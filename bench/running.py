"""Runs all sessions: rounds one after the other, in
each round every session with all systems in turn."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.driving import NotSupported, SessionFailed, Stage
from bench.environments import Environment, InstallFailed, NotInstalled
from bench.results import Recorder, Results
from bench.server import BenchServer, running_server
from bench.sessions import Session, Setting
from bench.sizes import Sizes
from bench.systems import System

Report = Callable[[str], None]
Keep = Callable[[Results], None]


def run(
    systems: list[System],
    environments: dict[str, Environment | InstallFailed],
    sizes: Sizes,
    chosen: list[Session],
    folder: Path,
    report: Report,
    keep: Keep,
) -> Results:
    """Every chosen session of every system. `keep` is given
    what there is after each session, since a run is long."""
    began = time.monotonic()
    with running_server(folder) as server:
        results = Results(_about(server, sizes), _versions(environments), {s.name: s.settings for s in systems})
        for number in range(sizes.rounds):
            for session in chosen:
                if session.once and number > 0:
                    continue
                # The first system changes from round to round, so
                # that no system always follows the same neighbour.
                turn = number % len(systems)
                for system in systems[turn:] + systems[:turn]:
                    if session.systems is None or system.name in session.systems:
                        report(f"round {number + 1}/{sizes.rounds}, {session.name}: {system.name}")
                        _perform(session, system, environments[system.name], server, sizes, results, folder)
                keep(results)
    results.about["duration"] = f"{(time.monotonic() - began) / 60:.1f} minutes"
    return results


def _perform(
    session: Session,
    system: System,
    environment: Environment | InstallFailed,
    server: BenchServer,
    sizes: Sizes,
    results: Results,
    folder: Path,
) -> None:
    record = Recorder(results, system.name, session.measures)
    with record.attempt():
        if isinstance(environment, NotInstalled):
            raise NotSupported(str(environment))
        if isinstance(environment, InstallFailed):
            raise SessionFailed(str(environment))
        if system.most_slots is not None and session.slots > system.most_slots:
            for measure in session.measures:
                results.leave_out(
                    measure, system.name, f"a process per slot; not run with more than {system.most_slots}"
                )
            return
        server.clear()
        place = folder / system.name
        place.mkdir(exist_ok=True)
        stage = Stage(system, environment, server.url, place, session.tasks)
        try:
            session.run(Setting(system, stage, server, sizes, record))
        except (SessionFailed, NotSupported):
            raise
        except Exception as error:
            # An error of one system must not lose the results of the others.
            raise SessionFailed(f"{type(error).__name__}: {error}") from error


def _versions(environments: dict[str, Environment | InstallFailed]) -> dict[str, dict[str, str]]:
    return {
        name: environment.versions if isinstance(environment, Environment) else {}
        for name, environment in environments.items()
    }


def _about(server: BenchServer, sizes: Sizes) -> dict[str, str]:
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "form": sizes.name,
        "rounds": str(sizes.rounds),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "server": f"{server.describe()}, TCP on the loopback, nothing written to disk",
        "load": f"{os.getloadavg()[0]:.1f} when the run began" if sys.platform != "win32" else "unknown",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"
