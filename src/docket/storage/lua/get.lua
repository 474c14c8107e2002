-- Reads the records of one task.
-- ARGV[2]: msgpack {key, a fresh secret if the caller waits for the task, or false}.
-- Returns: task record, run record, progress, finished record; false for each that does not exist;
--   then the secret of the docket, if the caller waits, or false; then the failed attempts of a
--   task that was retried, or false.
-- uses: keys, failed_attempts, proofs
local key, fresh = unpack(cmsgpack.unpack(ARGV[2]))
local secret = false
if fresh then
  --- parts
  secret = secret_or(fresh)
end
local bytes = call('HGET', TASKS, key)
local finished = not bytes and call('GET', RUNS .. segment(key))
local flags = string.byte(bytes or finished or '', bytes and TASK_FLAGS_AT or FINISHED_HEADER_SIZE + TASK_FLAGS_AT) or 0
local attempts = false
if flags ~= 0 then
  --- parts
  if was_retried(flags) then
    local stored = redis.pcall('GET', FAILED_ATTEMPTS .. segment(key))
    attempts = type(stored) == 'string' and stored
  end
end
if bytes then return {bytes, call('HGET', RUNNING, key), call('HGET', PROGRESS, key), false, secret, attempts} end
return {false, false, false, finished, secret, attempts}
