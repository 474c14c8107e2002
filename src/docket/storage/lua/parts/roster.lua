-- Takes a worker off the roster; needs records, moves and calling.

-- A blocking read of a worker that is gone may still be answered for this long.
local AFTERMATH_MS = 7000

-- Runs that were replaced while this worker ran them keep their slots no longer.
local function lay_ghosts(worker)
  local ghosts = call('HGETALL', GHOSTS)
  for i = 1, #ghosts, 2 do
    local run = unpack_run(ghosts[i + 1])
    if run.worker == worker then
      call('HDEL', GHOSTS, ghosts[i])
      release_slots(run)
    end
  end
end

local function pending_of(worker, stream, most)
  local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', most, worker)
  if type(pending) == 'table' and pending.err then return {} end
  return pending
end

local function delete_consumer(worker)
  redis.pcall('XGROUP', 'DELCONSUMER', STREAM, GROUP, worker)
  redis.pcall('XGROUP', 'DELCONSUMER', FRONT, GROUP, worker)
end

local function strike_off(worker)
  for _, name in ipairs(call('SMEMBERS', WORKER_TASKS .. worker)) do
    call('SREM', TASK_WORKERS .. segment(name), worker)
  end
  call('DEL', WORKER_TASKS .. worker, ORDERS .. worker)
  call('ZREM', LEASES, worker)
  call('HDEL', SUSPECTS, worker)
  call('HDEL', LENGTHS, worker)
  call('HDEL', GRACED, worker)
  call('ZREM', OFFERS, worker)
  call('HDEL', HANDED, worker)
end

-- Once more a while after a worker is gone, for what its last read brought. Who starts alone looks anyway.
local function call_for_second_look(now)
  local others = call('ZCARD', LEASES) - (call('ZSCORE', LEASES, CALL) and 1 or 0)
  if others > 0 then
    call_for_reclaiming(now + AFTERMATH_MS)
  elseif call('EXISTS', DYING) == 0 then
    call('ZREM', LEASES, CALL)
  end
end
