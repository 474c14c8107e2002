"""Reads the state of a docket for people: snapshots,
pages of tasks, a live view. It shows nothing itself."""
