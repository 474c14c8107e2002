"""Compares docket with other task systems on one server:
`python -m bench [--quick] [--systems docket arq …]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.environments import prepare
from bench.publishing import publish, save
from bench.quotes import quote
from bench.results import Results
from bench.running import run
from bench.sessions import sessions
from bench.sizes import FULL, QUICK, TINY
from bench.systems import ROOT, SYSTEMS
from bench.tables import render

CACHE = ROOT / ".bench"
FORMS = {sizes.name: sizes for sizes in (FULL, QUICK, TINY)}


def main() -> None:
    options = _options()
    results = _measure(options) if options.render is None else Results.load(options.render)
    print(render(results))
    written = save(results, CACHE / "latest")
    if options.publish:
        written += publish(results) + quote(results)
    print("\nWritten: " + ", ".join(str(path) for path in written), file=sys.stderr)


def _measure(options: argparse.Namespace) -> Results:
    began = time.monotonic()

    def report(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    systems = [system for system in SYSTEMS if system.name in options.systems]
    environments = prepare(systems, CACHE / "environments", renew=options.renew, report=report)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        unfinished = CACHE / "unfinished.json"
        sizes = FORMS[options.form]
        sizes = replace(sizes, rounds=options.rounds or sizes.rounds)
        chosen = [session for session in sessions(sizes) if options.only in session.name]
        return run(systems, environments, sizes, chosen, Path(folder), report, lambda r: r.save(unfinished))


def _options() -> argparse.Namespace:
    names = [system.name for system in SYSTEMS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument(
        "--full", dest="form", action="store_const", const="full", help="three rounds of everything (default)"
    )
    forms.add_argument(
        "--quick", dest="form", action="store_const", const="quick", help="one short round of the main measures"
    )
    forms.add_argument(
        "--tiny",
        dest="form",
        action="store_const",
        const="tiny",
        help="the smallest sizes, to check that everything works",
    )
    parser.add_argument(
        "--systems", nargs="+", default=names, choices=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only sessions whose name contains this, such as draining"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help="as many rounds instead of those of the form")
    parser.add_argument("--renew", action="store_true", help="reinstall the peers in their newest releases")
    parser.add_argument("--publish", action="store_true", help="also write the results into docs/")
    parser.add_argument(
        "--render", type=Path, metavar="JSON", help="show the results of an earlier run instead of measuring"
    )
    parser.set_defaults(form="full")
    return parser.parse_args()


if __name__ == "__main__":
    main()
