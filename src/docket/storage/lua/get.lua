-- Reads the records of one task.
-- ARGV[2]: msgpack {key}.
-- Returns: task record, run record, progress, finished record; false for each that does not exist.
-- uses: keys
local key = unpack(cmsgpack.unpack(ARGV[2]))
local bytes = call('HGET', TASKS, key)
if bytes then return {bytes, call('HGET', RUNNING, key), call('HGET', PROGRESS, key), false} end
return {false, false, false, call('GET', RUNS .. segment(key))}
