"""Claiming: how tasks come to a worker. The fetcher
claims, prefetches and receives direct deliveries."""
