"""The Redis client layer: pipelined connections to one node, the nodes of clusters and sentinels,
typed errors and outages. Only `redis_py` uses private names of the client library."""
