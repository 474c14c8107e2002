"""`python -m chaos`: runs processes under faults and checks
what they saw. Exits with 1 if a rule is violated."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .broken import BUILDS
from .harness import Harness, Options
from .histories import read_histories
from .model import read_model
from .report import Verdict, details, figures, judge, summary
from .servers import SERVERS
from .tables import tables
from .timeline import Timeline


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # The docket of the harness itself warns of the same outages and the same garbage as all others.
    logging.getLogger("docket").setLevel(logging.ERROR)
    if options.table is not None:
        print(tables(options.table))
        return 0
    if options.check is not None:
        return _report(options.check, options.output)
    if options.all_broken:
        return _all_broken(options.seed)
    if options.broken:
        return _run(broken_options(options.broken, options.seed), options.output)
    chosen = Options(seconds=options.seconds, seed=options.seed, rate=options.rate, servers=options.servers)
    return _run(chosen, options.output)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="the duration of load and faults (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="work and faults follow from it (default: 1)")
    parser.add_argument("--rate", type=float, default=Options.rate, help="pieces of work per second (default: 80)")
    parser.add_argument("--servers", choices=sorted(SERVERS), default="standalone", help="the kind of servers")
    parser.add_argument("--output", type=Path, help="a folder for the summary, the figures and the time-line")
    parser.add_argument("--broken", choices=sorted(BUILDS), help="run a build that is broken on purpose")
    parser.add_argument("--all-broken", action="store_true", help="run all of them; exits with 0 if each is caught")
    parser.add_argument("--check", type=Path, metavar="FOLDER", help="only check the histories in this folder")
    parser.add_argument(
        "--table", type=Path, metavar="FOLDER", help="only print the figures in this folder as Markdown"
    )
    return parser


def broken_options(name: str, seed: int) -> Options:
    """The shortest run that shows this mistake."""
    build = BUILDS[name]
    return Options(
        seconds=build.seconds,
        seed=seed,
        rate=build.rate,
        faults=build.faults,
        gap_seconds=build.gap_seconds,
        clocks=build.clocks,
        broken=name,
        work=build.work,
        # Longer than the longest task.
        drain_seconds=30.0,
    )


def _run(options: Options, output: Path | None) -> int:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"chaos: {options.seconds:g} s, seed {options.seed}, histories in {folder}", file=sys.stderr)
    asyncio.run(Harness(folder, options).run())
    code = _report(folder, output)
    if code == 0 and output is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _report(folder: Path, output: Path | None) -> int:
    """Prints the verdict, and writes it into the folder for output."""
    verdict = _judge(folder)
    seed = verdict.model.of_kind("options")[0]["seed"]
    print(summary(verdict, seed))
    if verdict.count:
        print("\n" + details(verdict))
    output = output or folder
    output.mkdir(parents=True, exist_ok=True)
    violations = [violation for found in verdict.violations.values() for violation in found]
    title = f"seed {seed}: requests, starts and faults; {len(violations)} violations"
    (output / f"seed-{seed}.svg").write_text(Timeline(verdict.model, violations, title).draw())
    (output / f"seed-{seed}.json").write_text(json.dumps(figures(verdict, seed), indent=1) + "\n")
    (output / f"seed-{seed}.txt").write_text(f"{summary(verdict, seed)}\n\n{details(verdict)}\n")
    print(f"\nwritten to {output}: seed-{seed}.svg, seed-{seed}.json, seed-{seed}.txt")
    return 1 if verdict.count else 0


def _judge(folder: Path) -> Verdict:
    return judge(read_model(read_histories(folder)))


def _all_broken(seed: int) -> int:
    """Runs each broken build. A build that no rule catches is a hole in the rules."""
    missed: list[str] = []
    for name in BUILDS:
        folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        asyncio.run(Harness(folder, broken_options(name, seed)).run())
        verdict = _judge(folder)
        rules = [f"{rule.replace('_', ' ')} ({len(found)})" for rule, found in verdict.violations.items() if found]
        print(f"{'caught' if rules else 'MISSED'}  {name}: {', '.join(rules) or 'no violation'}", flush=True)
        if rules:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            missed.append(name)
            print(f"        histories in {folder}")
    print(f"{len(BUILDS) - len(missed)} of {len(BUILDS)} broken builds caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
