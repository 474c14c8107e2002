-- The slots of concurrency limits. A run that ends releases its slots, and the tasks that have
-- waited longest get them.
-- uses: keys, records, placement

-- The limits of a parked or woken task. It holds a slot of every limit but the last, which it waits
-- for or was just granted.
local function parked_limits(key)
  local limits = {}
  for limit in string.gmatch(call('HGET', PARKED, key) or '', '[^\n]+') do limits[#limits + 1] = limit end
  return limits
end

-- Frees slots whose holders are not what docket writes. Looks at a few holders at random, so that
-- it costs little. Returns whether it freed any.
local function drop_odd_holders(limit)
  local freed = 0
  for _, holder in ipairs(call('SRANDMEMBER', SLOTS .. limit, 2)) do
    if not string.match(holder, '^r%d+$') and string.sub(holder, 1, 1) ~= 'w' then
      freed = freed + call('SREM', SLOTS .. limit, holder)
    end
  end
  return freed > 0
end

-- Gives the free slots of a limit to the tasks that have waited longest. The slot is reserved at
-- once, so that a newcomer cannot take it.
local function wake_waiters(limit)
  local slots, waiters = SLOTS .. limit, WAITERS .. limit
  local stored = call('HGET', LIMITS, limit)
  -- If the number is damaged, one waiter may go on: its `acquire` writes the number again.
  local most = stored and number_in(stored, 1) or 0
  for _ = 1, 100 do
    if call('SCARD', slots) >= most then break end
    local first = call('ZPOPMIN', waiters)
    if #first == 0 then break end
    local key = first[1]
    local bytes = call('HGET', TASKS, key)
    local task = bytes and unpack_task(bytes)
    if task and not is_unknown_location(task) then
      call('SADD', slots, 'w' .. key)
      to_front(key, task)
      call('HSET', TASKS, key, pack_task(task))
    else
      for _, other in ipairs(parked_limits(key)) do call('SREM', SLOTS .. other, 'w' .. key) end
      call('HDEL', PARKED, key)
    end
  end
  if call('EXISTS', slots, waiters) == 0 then call('HDEL', LIMITS, limit) end
end

local function release_slots(run)
  if run.limits == '' then return end
  local holder = 'r' .. string.format('%.0f', run.epoch)
  for limit in string.gmatch(run.limits, '[^\n]+') do
    call('SREM', SLOTS .. limit, holder)
    wake_waiters(limit)
  end
end

-- A parked or woken task gives up its wait and its reserved slots.
local function leave_waiters(key)
  local limits = parked_limits(key)
  if #limits == 0 then return end
  call('HDEL', PARKED, key)
  for _, limit in ipairs(limits) do
    call('ZREM', WAITERS .. limit, key)
    call('SREM', SLOTS .. limit, 'w' .. key)
  end
  for _, limit in ipairs(limits) do wake_waiters(limit) end
end
