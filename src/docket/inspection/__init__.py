"""Reads the state of a docket for operators: snapshots, pages of tasks, live
values. The command line and the dashboard display it."""
