-- Deregisters a worker.
-- uses: keys, records, fleet, suspects, limit_slots

-- The server may still answer a blocking read of a dead worker for this long.
local LATE_READ_MS = 7000

-- Releases the limits' slots of replaced runs whose workers are gone (`gone`: id → true).
local function release_replaced_runs(gone)
  if not next(gone) then return end
  local replaced = call('HGETALL', REPLACED_RUNS)
  for i = 1, #replaced, 2 do
    local run = unpack_run(replaced[i + 1])
    if not run then
      call('HDEL', REPLACED_RUNS, replaced[i])
      note_damaged_run()
    elseif gone[run.worker] then
      call('HDEL', REPLACED_RUNS, replaced[i])
      release_slots(run)
    end
  end
end

local function delete_consumer(worker)
  redis.pcall('XGROUP', 'DELCONSUMER', STREAM, GROUP, worker)
  redis.pcall('XGROUP', 'DELCONSUMER', FRONT, GROUP, worker)
end

-- Removes up to `most` functions of the worker from the registry. Returns how many.
local function forget_functions(worker, most)
  local names = call('SPOP', WORKER_TASKS .. worker, most)
  for _, name in ipairs(names) do call('SREM', TASK_WORKERS .. segment(name), worker) end
  return #names
end

local MOST_FUNCTIONS = 1000000

local function deregister(worker)
  forget_functions(worker, MOST_FUNCTIONS)
  call('DEL', WORKER_TASKS .. worker, CANCEL_REQUESTS .. worker)
  call('ZREM', LEASES, worker)
  forget_worker(worker)
  call('SREM', STOPPING, worker)
  call('HDEL', LEASE_LENGTHS, worker)
  call('ZREM', OFFERS, worker)
  call('HDEL', LAST_DIRECT, worker)
  call('HDEL', OFFER_SECRETS, worker)
  call('HDEL', WORKER_REPORTS, worker)
end

-- After the last worker has gone, its last read may still bring deliveries, so another reclaim
-- follows a while later. The next leader reclaims in any case.
local function schedule_second_reclaim(now)
  local gone_at = number_in(call('HGET', FLEET, 'gone-at'), 0)
  if workers_with_lease() <= 0 then
    if call('EXISTS', DYING) == 0 then call('DEL', LEASES, FLEET) end
  elseif gone_at <= now and gone_at + LATE_READ_MS > now then
    schedule_reclaim(gone_at + LATE_READ_MS)
  else
    call('HDEL', FLEET, 'gone-at')
  end
end

local function note_gone(now)
  call('HSET', FLEET, 'gone-at', string.format('%.0f', now))
end
