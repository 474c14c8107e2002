-- Reads how functions are declared (docs/design/web.md).
-- ARGV[2]: msgpack list of function names.
-- Returns: per function: its declaration or false.
-- uses: keys
return call('HMGET', DECLARED, unpack(cmsgpack.unpack(ARGV[2])))
