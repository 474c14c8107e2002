"""Everything that knows Redis: connections, keys, records, scripts."""
