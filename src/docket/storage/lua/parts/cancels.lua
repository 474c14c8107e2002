-- Cancels a task, whether it waits or runs.
-- uses: keys, records, removal, endings, proofs

-- A waiting task (`run` is nil) ends at once. For a running task, marks the run and sends a cancel
-- request to its worker. Returns 1 cancelled, 2 the worker got a request.
local function cancel_task(key, task, bytes, run, ttl)
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
end
