-- Tasks that wait for a worker that knows their function (docs/design/state-machine.md).
-- uses: keys, records

-- In the order of their claims.
local function to_unknown(key, task, epoch, now)
  task.location, task.entry_ms, task.entry_seq = UNKNOWN_FUNCTION, 0, 0
  call('ZADD', UNKNOWN_TASKS .. segment(task.name), epoch, key)
  call('HSETNX', UNKNOWN_SINCE, task.name, string.format('%.0f', now))
end

-- Whether tasks of the function still wait; a function without any is forgotten.
local function forget_if_none_wait(name)
  if call('EXISTS', UNKNOWN_TASKS .. segment(name)) == 1 then return true end
  call('HDEL', UNKNOWN_SINCE, name)
  return false
end

local function leave_unknown(key, task)
  call('ZREM', UNKNOWN_TASKS .. segment(task.name), key)
  forget_if_none_wait(task.name)
end

-- Whether a live worker, other than the one that asks, knows the function.
local function is_known_elsewhere(name, worker)
  for _, other in ipairs(call('SMEMBERS', TASK_WORKERS .. segment(name))) do
    if other ~= worker and call('ZSCORE', LEASES, other) then return true end
  end
  return false
end

local MOST_TOLD = 8

-- A few of the live workers that know the function hear that tasks of it wait.
local function tell_workers_that_know(name)
  local told = 0
  for _, worker in ipairs(call('SRANDMEMBER', TASK_WORKERS .. segment(name), MOST_TOLD * 4)) do
    if told < MOST_TOLD and call('ZSCORE', LEASES, worker) then
      call('PUBLISH', CHANNELS .. 'worker/' .. worker, 'function ' .. name)
      told = told + 1
    end
  end
end
