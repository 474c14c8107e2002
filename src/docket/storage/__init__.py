"""Everything that knows Redis: `client` has the connections, `embedded` the engine that docket
starts itself, `lua` the scripts. Beside them are a server as docket uses it, keys and records."""
