"""The child processes in which workers run functions that declare `Process`: the program of a
child, and the messages between a worker and its children (docs/design/processes.md)."""
