"""Plain values: states, errors, clocks. No I/O."""
