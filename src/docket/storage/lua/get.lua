-- Reads the records of one task.
-- ARGV[2]: msgpack {key, a fresh secret if the caller waits for the task, or false}.
-- Returns: task record, run record, progress, finished record; false for each that does not exist;
--   then the secret of the docket, if the caller waits, or false.
-- uses: keys, proofs
local key, fresh = unpack(cmsgpack.unpack(ARGV[2]))
local secret = false
if fresh then
  --- parts
  secret = secret_or(fresh)
end
local bytes = call('HGET', TASKS, key)
if bytes then return {bytes, call('HGET', RUNNING, key), call('HGET', PROGRESS, key), false, secret} end
return {false, false, false, call('GET', RUNS .. segment(key)), secret}
