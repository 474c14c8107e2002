"""`python -m bench.adapters <system> produce|work`.

The adapter is imported, not run, so that its tasks have the same names everywhere.
"""

from __future__ import annotations

import importlib
import logging
import sys

from bench.adapters.serving import DEFAULT_LOG, answer_orders


def main() -> None:
    if not DEFAULT_LOG:
        logging.basicConfig(level=logging.WARNING)
    adapter = importlib.import_module(f"bench.adapters.{sys.argv[1]}")
    if sys.argv[2] == "work":
        adapter.work()
    else:
        answer_orders(adapter.produce())


if __name__ == "__main__":
    main()
