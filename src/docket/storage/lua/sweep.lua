-- Repairs a page of unfinished tasks that no ordinary path reaches (docs/design/state-machine.md).
-- ARGV[2]: msgpack {page size, least ms between sweeps, ttl ms}.
-- Returns: number of tasks read, number of tasks repaired.
-- uses: keys, records, unknown_functions, placement, limit_slots, removal, endings, statistics, locations
local size, least, ttl = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local state = call('HMGET', SWEEP_CURSOR, 'at', 'cursor')
local since = now - number_in(state[1], 0)
if since >= 0 and since < least then return {0, 0} end
permit_when_full()
local cursor = string.match(state[2] or '', '^%d+$') or '0'
local page = call('HSCAN', TASKS, #cursor < 20 and cursor or '0', 'COUNT', size)
call('HSET', SWEEP_CURSOR, 'at', string.format('%.0f', now), 'cursor', page[1])
local repaired = 0
call('ZREMRANGEBYSCORE', MANUAL_LEASES, '-inf', (real_ms()))

local last_ids = {}

local function may_be_reached(key, task, run)
  if run and not may_live(run.worker) then return false end
  if run and is_manual(run.worker) then return true end
  return is_reachable_location(key, task, last_ids)
end

for i = 1, #page[2], 2 do
  -- Read again: a repair may have woken another task of the page.
  local key, bytes = page[2][i], call('HGET', TASKS, page[2][i])
  local task = bytes and unpack_task(bytes)
  local run_bytes = call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  if task and not is_unknown_location(task) and not may_be_reached(key, task, run) then
    repaired = repaired + 1
    remove_from_location(key, task)
    if run and has_flag(run, CANCEL_ASKED) then
      finish_cancelled(key, run, now, bytes, ttl)
    else
      if run then
        --- parts
        remember_admission(task, run)
        count_ending(key, bytes, LOST_KIND, now, run, ttl, false, 0)
      end
      to_front(key, task)
      call('HSET', TASKS, key, pack_task(task))
    end
  end
end
-- After a run record was damaged: frees the slots of limits whose holders are gone.
local function free_orphaned_slots()
  local live = {}
  for _, run_bytes in ipairs(call('HVALS', RUNNING)) do
    local run = unpack_run(run_bytes)
    if run then live['r' .. string.format('%.0f', run.epoch)] = true end
  end
  for _, epoch in ipairs(call('HKEYS', REPLACED_RUNS)) do live['r' .. epoch] = true end
  for _, limit in ipairs(call('HKEYS', LIMITS)) do
    for _, holder in ipairs(call('SMEMBERS', SLOTS .. limit)) do
      local is_reserved = string.sub(holder, 1, 1) == 'w' and call('HEXISTS', PARKED, string.sub(holder, 2)) == 1
      if not live[holder] and not is_reserved then call('SREM', SLOTS .. limit, holder) end
    end
    wake_waiters(limit)
  end
end

if call('HDEL', SWEEP_CURSOR, 'slots') == 1 then free_orphaned_slots() end

-- No more than half of the workers run a suspect alone: whoever is not a worker does not count.
for _, worker in ipairs(call('HKEYS', ALONE_WORKERS)) do
  if not may_live(worker) then call('HDEL', ALONE_WORKERS, worker) end
end

-- Notifies workers again that may have missed the tasks that wait for them.
if call('EXISTS', UNKNOWN_SINCE) == 1 then
  for _, name in ipairs(call('HRANDFIELD', UNKNOWN_SINCE, 100)) do
    if forget_if_none_wait(name) then notify_workers_that_know(name) end
  end
end
return {#page[2] / 2, repaired}
