-- Takes a worker off the roster; needs records and moves.
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
  call('ZREM', WORKERS, worker)
  call('ZREM', LEASES, worker)
  call('HDEL', SUSPECTS, worker)
  call('HDEL', LENGTHS, worker)
  call('SREM', GRACED, worker)
end
