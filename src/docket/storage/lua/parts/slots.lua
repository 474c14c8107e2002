-- The slots of concurrency limits. A run that ends releases its slots, and the tasks that have
-- waited longest get them.
-- uses: keys, records, placement

-- The limits of a task that waits for a slot: the last is the one in whose line it is, or for which
-- it was woken; of those before it the task has a slot.
local function parked_at(key)
  local limits = {}
  for limit in string.gmatch(call('HGET', PARKED, key) or '', '[^\n]+') do limits[#limits + 1] = limit end
  return limits
end

-- Gives free slots of a limit to those first in line: the
-- slot is theirs from now on, so a newcomer cannot take it.
local function wake_waiters(limit)
  local slots, line = SLOTS .. limit, WAITERS .. limit
  local most = tonumber(call('HGET', LIMITS, limit) or '0')
  for _ = 1, 100 do
    if call('SCARD', slots) >= most then break end
    local first = call('ZPOPMIN', line)
    if #first == 0 then break end
    local key = first[1]
    local bytes = call('HGET', TASKS, key)
    local task = bytes and unpack_task(bytes)
    if task and not is_unknown_location(task) then
      call('SADD', slots, 'w' .. key)
      to_front(key, task)
      call('HSET', TASKS, key, pack_task(task))
    else
      for _, other in ipairs(parked_at(key)) do call('SREM', SLOTS .. other, 'w' .. key) end
      call('HDEL', PARKED, key)
    end
  end
  if call('EXISTS', slots, line) == 0 then call('HDEL', LIMITS, limit) end
end

local function release_slots(run)
  if run.limits == '' then return end
  local holder = 'r' .. string.format('%.0f', run.epoch)
  for limit in string.gmatch(run.limits, '[^\n]+') do
    call('SREM', SLOTS .. limit, holder)
    wake_waiters(limit)
  end
end

-- A task that waits in a limit's line, or was woken with slots kept for it, gives that up.
local function leave_waiters(key)
  local limits = parked_at(key)
  if #limits == 0 then return end
  call('HDEL', PARKED, key)
  for _, limit in ipairs(limits) do
    call('ZREM', WAITERS .. limit, key)
    call('SREM', SLOTS .. limit, 'w' .. key)
  end
  for _, limit in ipairs(limits) do wake_waiters(limit) end
end
