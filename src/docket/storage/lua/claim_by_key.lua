-- Claims one task by its key, whatever its location, for a caller that runs it outside of a worker.
-- Such a run has no stream entry, and a lease of its own.
-- ARGV[2]: msgpack {key, id of the run's lease, the caller's name as JSON, lease ms}.
-- Returns: server ms and the epoch; the epoch is 0 if the task is not waiting.
-- uses: keys, records, removal, claims
local key, worker, worker_json, lease = unpack(cmsgpack.unpack(ARGV[2]))
local now, now_us = server_ms()
local bytes = call('HGET', TASKS, key)
if not bytes or call('HEXISTS', RUNNING, key) == 1 then return {now, 0} end
local task = unpack_task(bytes)
if is_unknown_location(task) then return {now, 0} end
remove_from_location(key, task)
local run = {epoch = next_epochs(1, now_us), started = now, entry_ms = 0, entry_seq = 0, flags = 0, worker = worker, limits = ''}
call('ZADD', MANUAL_LEASES, real_ms() + lease, worker)
call('HSET', RUNNING, key, pack_run(run))
publish(key, running_event(worker_json, now))
return {now, run.epoch}
