-- Tasks that wait for a worker that knows their function (docs/design/state-machine.md).
-- uses: keys, proofs

-- The tasks wait in the order of their claims.
local function to_unknown(key, task, epoch, now)
  task.location, task.entry_ms, task.entry_seq = UNKNOWN_FUNCTION, 0, 0
  call('ZADD', UNKNOWN_TASKS .. segment(task.name), epoch, key)
  call('HSETNX', UNKNOWN_SINCE, task.name, string.format('%.0f', now))
end

-- Whether tasks of the function still wait. Forgets a function without waiting tasks.
local function forget_if_none_wait(name)
  if call('EXISTS', UNKNOWN_TASKS .. segment(name)) == 1 then return true end
  call('HDEL', UNKNOWN_SINCE, name)
  return false
end

-- Whether a live worker other than `worker` knows the function.
local function is_known_elsewhere(name, worker)
  for _, other in ipairs(call('SMEMBERS', TASK_WORKERS .. segment(name))) do
    if other ~= worker and call('ZSCORE', LEASES, other) then return true end
  end
  return false
end

local MOST_NOTIFIED = 8

-- Notifies a few of the live workers that know the function.
local function notify_workers_that_know(name)
  local notified = 0
  for _, worker in ipairs(call('SRANDMEMBER', TASK_WORKERS .. segment(name), MOST_NOTIFIED * 4)) do
    if notified < MOST_NOTIFIED and call('ZSCORE', LEASES, worker) then
      call('PUBLISH', CHANNELS .. 'worker/' .. worker, 'F' .. proof('function', worker, name) .. name)
      notified = notified + 1
    end
  end
end
