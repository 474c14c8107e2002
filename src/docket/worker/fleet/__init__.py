"""Duties that one worker of the fleet does for all:
staging, seeding, samples, and the resuming of pauses."""
