-- Deregisters a worker.
-- uses: keys, records, fleet, suspects, slots

-- A blocking read of a worker that is gone may still be answered for this long.
local AFTERMATH_MS = 7000

-- Runs that were replaced while one of these workers
-- (id → true) ran them keep their slots no longer.
local function release_replaced_runs(gone)
  if not next(gone) then return end
  local replaced = call('HGETALL', REPLACED_RUNS)
  for i = 1, #replaced, 2 do
    local run = unpack_run(replaced[i + 1])
    if gone[run.worker] then
      call('HDEL', REPLACED_RUNS, replaced[i])
      release_slots(run)
    end
  end
end

local function delete_consumer(worker)
  redis.pcall('XGROUP', 'DELCONSUMER', STREAM, GROUP, worker)
  redis.pcall('XGROUP', 'DELCONSUMER', FRONT, GROUP, worker)
end

-- The worker no longer counts as one that knows so
-- many of its functions; answers how many those were.
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
end

-- Once more a while after the last worker is gone, for
-- what its last read brought. Who leads next looks anyway.
local function schedule_second_reclaim(now)
  local gone_at = tonumber(call('HGET', FLEET, 'gone-at') or '0')
  if workers_with_lease() <= 0 then
    if call('EXISTS', DYING) == 0 then call('DEL', LEASES, FLEET) end
  elseif gone_at <= now and gone_at + AFTERMATH_MS > now then
    schedule_reclaim(gone_at + AFTERMATH_MS)
  else
    call('HDEL', FLEET, 'gone-at')
  end
end

local function note_gone(now)
  call('HSET', FLEET, 'gone-at', string.format('%.0f', now))
end
