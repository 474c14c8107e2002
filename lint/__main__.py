"""`python -m lint`: the house rules that no ready-made linter checks. Prints every violation, and
exits with 1 if there is one."""

from __future__ import annotations

import sys

from lint import comments, imports, paths, prose, sizes, words


def main() -> int:
    findings = [*sizes.check(), *imports.check(), *words.check(), *paths.check(), *prose.check(), *comments.check()]
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
