-- Cancels a task. A waiting task ends at once. For a running task the script marks the run and
-- sends a cancel request to its worker.
-- ARGV[2]: msgpack {key, ttl ms, function name or false for any}.
-- Returns: 0 there is no such task (or only a newer release knows its location), 1 cancelled, 2 the
--   worker got a cancel request.
-- uses: keys, records, cancels
local key, ttl, name = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local bytes = call('HGET', TASKS, key)
if not bytes then return 0 end
local task, run_bytes = unpack_task(bytes), call('HGET', RUNNING, key)
if name and task.name ~= name then return 0 end
local run = run_bytes and unpack_run(run_bytes)
if not run and is_unknown_location(task) then return 0 end
return cancel_task(key, task, bytes, run, ttl)
