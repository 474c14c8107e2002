"""Makes the same calls on `pydocket` 0.27 and on docket, each
in its own environment, and compares their behaviour."""
