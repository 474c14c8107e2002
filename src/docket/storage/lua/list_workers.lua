-- Lists all workers, or the workers that know a function.
-- ARGV[2]: msgpack {function name or false}.
-- Returns: per worker: id, last seen (server ms), list of function names.
-- uses: keys
local name = unpack(cmsgpack.unpack(ARGV[2]))
local ids = name and call('SMEMBERS', TASK_WORKERS .. segment(name)) or call('ZRANGE', LEASES, 0, -1)
local answer = {}
for _, id in ipairs(ids) do
  local ends, length = call('ZSCORE', LEASES, id), number_in(call('HGET', LEASE_LENGTHS, id))
  if ends and length then answer[#answer + 1] = {id, ends - length, call('SMEMBERS', WORKER_TASKS .. id)} end
end
return answer
