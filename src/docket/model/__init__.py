"""Values without I/O: states, times, keys, clocks."""
