-- Deregisters a worker that stops. Other workers reclaim the deliveries that it leaves behind; they
-- do not count as losses.
-- ARGV[2]: msgpack {worker id}.
-- Returns: whether the worker left deliveries behind (0/1).
-- uses: keys, fleet, placement, workers
local worker = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
deregister(worker)
give_up_duty(worker)
release_replaced_runs({[worker] = true})
local now = real_ms()
call('ZADD', LOST, now, worker)
note_gone(now)
if #pending_of(worker, STREAM, 1) + #pending_of(worker, FRONT, 1) > 0 then
  call('SADD', DYING, worker)
  schedule_reclaim(0)
  call('SADD', STOPPING, worker)
  return 1
end
delete_consumer(worker)
schedule_second_reclaim(now)
return 0
