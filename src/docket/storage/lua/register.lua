-- Puts a worker on the roster with the names of the tasks it knows, and sees to it that the consumer group exists.
-- ARGV[2]: msgpack {worker id, lease ms, list of task names}.
-- Returns: server ms.
local worker, lease, names = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
insist()
ensure_groups()
call('ZADD', LEASES, now + lease, worker)
call('HSET', LENGTHS, worker, lease)
for _, name in ipairs(names) do
  call('SADD', WORKER_TASKS .. worker, name)
  call('SADD', TASK_WORKERS .. segment(name), worker)
end
return now
