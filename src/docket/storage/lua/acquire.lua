-- Takes a slot of every limit for a run, in the order of the limits' names. At the first full limit
-- the task is parked. It keeps the slots that it has: since all tasks take slots in the same order,
-- no two tasks wait for each other.
-- ARGV[2]: msgpack {key, epoch, list of {limit, most}, ttl ms, what the run took from other
--   limits}.
-- Returns: 1 acquired, 2 parked or 0 lost; the number of the full limit, counted from 1, or 0.
-- uses: keys, records, placement, limit_slots, removal, endings, admission
local key, epoch, limits, ttl, taken = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local run_bytes, bytes = call('HGET', RUNNING, key), call('HGET', TASKS, key)
local run = run_bytes and unpack_run(run_bytes)
if not run or not bytes or run.epoch ~= epoch then return {0, 0} end
if run.limits ~= '' then return {1, 0} end

local kept = {}
for _, limit in ipairs(parked_limits(key)) do
  kept[limit] = true
  call('SREM', SLOTS .. limit, 'w' .. key)
end
if next(kept) then call('HDEL', PARKED, key) end

for i, l in ipairs(limits) do l[3] = i end
table.sort(limits, function(a, b) return a[1] < b[1] end)
local names, full = {}, nil
for i, l in ipairs(limits) do
  names[i] = l[1]
  call('HSET', LIMITS, l[1], l[2])
  local free = call('SCARD', SLOTS .. l[1]) < l[2] or drop_odd_holders(l[1]) and call('SCARD', SLOTS .. l[1]) < l[2]
  if not free and call('SREM', SLOTS .. l[1], 'w' .. key) == 1 then
    -- The slot was reserved for this task, and what PARKED said about it is damaged.
    free, kept[l[1]] = call('SCARD', SLOTS .. l[1]) < l[2], true
  end
  local is_next = kept[l[1]] or call('ZCARD', WAITERS .. l[1]) == 0
  if not full and not (free and is_next) then full = i end
end

if full then
  local task = unpack_task(bytes)
  end_run(key, run, false)
  give_back(taken, run.epoch, not has_flag(run, CANCEL_ASKED))
  if has_flag(run, CANCEL_ASKED) then
    finish_cancelled(key, run, (server_ms()), bytes, ttl)
  else
    task.location, task.entry_ms, task.entry_seq = WAITING_FOR_SLOT, 0, 0
    call('HSET', TASKS, key, pack_task(task))
    if not has_progress(task.flags) then call('HDEL', PROGRESS, key) end
    for i = 1, full - 1 do call('SADD', SLOTS .. names[i], 'w' .. key) end
    call('HSET', PARKED, key, table.concat(names, '\n', 1, full))
    -- A task from the front stream was ready before all tasks that wait here.
    local score = has_flag(run, FROM_FRONT) and run.epoch - 2 ^ 51 or run.epoch
    call('ZADD', WAITERS .. names[full], score, key)
    publish(key, waiting_event(task))
  end
else
  for _, name in ipairs(names) do call('SADD', SLOTS .. name, 'r' .. string.format('%.0f', epoch)) end
  run.limits = table.concat(names, '\n')
  call('HSET', RUNNING, key, pack_run(run))
end

-- A limit that was raised since may have slots for its waiters. An unused limit is forgotten.
for limit in pairs(kept) do wake_waiters(limit) end
for _, name in ipairs(names) do wake_waiters(name) end
if full then return {2, limits[full][3]} end
return {1, 0}
