"""`python -m lint`: the house rules that no ready-made linter checks. Prints every violation, and
exits with 1 if there is one."""

from __future__ import annotations

import sys

from lint import comments, imports, names, paths, prose, rooms, sizes, sync_verbs, texts, twins, words


def main() -> int:
    rules = (sizes, rooms, imports, names, words, texts, paths, prose, comments, sync_verbs, twins)
    findings = [finding for rule in rules for finding in rule.check()]
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
