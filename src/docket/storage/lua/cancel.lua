-- Cancels a task. A waiting task ends at once. For a running task the script marks the run and
-- sends a cancel request to its worker.
-- ARGV[2]: msgpack {key, ttl ms, function name or false for any}.
-- Returns: 0 there is no such task (or only a newer release knows its location), 1 cancelled, 2 the
--   worker got a cancel request.
-- uses: keys, records, removal, endings, proofs
local key, ttl, name = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local bytes = call('HGET', TASKS, key)
if not bytes then return 0 end
local task, run_bytes = unpack_task(bytes), call('HGET', RUNNING, key)
if name and task.name ~= name then return 0 end
local run = run_bytes and unpack_run(run_bytes)
if not run and is_unknown_location(task) then return 0 end
keep_chain_cancelled(key)
if run then
  if not has_flag(run, CANCEL_ASKED) then
    run.flags = run.flags + CANCEL_ASKED
    call('HSET', RUNNING, key, pack_run(run))
    if call('ZSCORE', LEASES, run.worker) then
      call('RPUSH', CANCEL_REQUESTS .. run.worker, string.format('%.0f', run.epoch) .. ' ' .. key)
    end
  end
  local request = string.format('%.0f', run.epoch) .. ' ' .. key
  call('PUBLISH', CHANNELS .. 'worker/' .. run.worker, 'C' .. proof('cancel', run.worker, request) .. request)
  return 2
end
remove_from_location(key, task)
finish_cancelled(key, nil, (server_ms()), bytes, ttl)
return 1
