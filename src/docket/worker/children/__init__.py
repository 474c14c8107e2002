"""The child processes of a worker, for functions that declare `Process`."""
