-- Who works here, all of them or those who know a task.
-- ARGV[2]: msgpack {task name or false}.
-- Returns: per worker: id, last seen (server ms), list of task names.
-- uses: keys
local name = unpack(cmsgpack.unpack(ARGV[2]))
local ids = name and call('SMEMBERS', TASK_WORKERS .. segment(name)) or call('ZRANGE', LEASES, 0, -1)
local answer = {}
for _, id in ipairs(ids) do
  local ends, length = call('ZSCORE', LEASES, id), call('HGET', LEASE_LENGTHS, id)
  if ends and length then answer[#answer + 1] = {id, ends - length, call('SMEMBERS', WORKER_TASKS .. id)} end
end
return answer
