"""The lease: a worker's entry in the fleet, its renewal
from a thread of its own, and reclaiming for the fleet."""
