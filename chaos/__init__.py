"""The history checker: real processes, a real server,
faults on purpose, and rules over what was seen.

`python -m chaos --seconds 60 --seed 1` runs it; docs/reliability.md describes it.
"""
