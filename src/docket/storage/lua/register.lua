-- Puts a worker on the roster with the names of the tasks it knows, gives it a duty that is vacant, and sees to it that the
-- consumer group exists.
-- ARGV[2]: msgpack {worker id, lease ms, list of task names}.
-- Returns: server ms, the worker's duty (1 leader, 2 deputy, 0 none).
local worker, lease, names = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
insist()
ensure_groups()
open_fleet(now)
call('ZADD', LEASES, now + lease, worker)
local longest = tonumber(call('HGET', FLEET, 'longest') or '0')
if lease > longest then call('HSET', FLEET, 'longest', lease) end
call('HSET', LENGTHS, worker, lease)
for _, name in ipairs(names) do
  call('SADD', WORKER_TASKS .. worker, name)
  call('SADD', TASK_WORKERS .. segment(name), worker)
end
return {now, take_duty(worker)}
