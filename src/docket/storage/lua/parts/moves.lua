-- What scripts do to a task: put it on the stream or the queue, take it out again, end its run, wake those who wait.

local function drop_entries(stream, ids)
  if #ids > 0 then
    call('XACK', stream, GROUP, unpack(ids))
    call('XDEL', stream, unpack(ids))
  end
end

-- Keeps an entry that another program wrote, before it is dropped (docs/design/foreign-tasks.md). An entry of ours is not kept.
local function set_aside(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  if entry and entry[2][1] ~= 'k' then call('XADD', FOREIGN, '*', unpack(entry[2])) end
end

-- The same for a key in the queue that has no task record: another program keeps its call in a hash of that name.
local function set_aside_scheduled(key)
  local fields = redis.pcall('HGETALL', P .. key)
  if not fields.err and #fields > 0 then call('XADD', FOREIGN, '*', unpack(fields)) end
end

-- A worker's deliveries on a stream: none if the group is gone.
local function pending_of(worker, stream, most)
  local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', most, worker)
  if type(pending) == 'table' and pending.err then return {} end
  return pending
end

local function to_stream(key, task)
  task.place = QUEUED
  set_entry(task, call('XADD', STREAM, '*', 'k', key))
end

-- For a task that had its turn before (recovered, handed back, woken in a line): not behind a million newer ones.
local function to_front(key, task)
  task.place = FIRST
  set_entry(task, call('XADD', FRONT, '*', 'k', key))
end

-- An earlier due time than any before wakes the stagers, which sleep until the earliest they know.
local function wait_for_time(key, due)
  call('ZADD', QUEUE, due, key)
  if call('ZRANGE', QUEUE, 0, 0)[1] == key then
    call('PUBLISH', CHANNELS .. 'wake/', string.format('%.0f', math.floor(due)))
  end
end

local function to_queue(key, task)
  task.place, task.entry_ms, task.entry_seq = SCHEDULED, 0, 0
  wait_for_time(key, task.due)
end

local function put(key, task, now)
  if task.due <= now then to_stream(key, task) else to_queue(key, task) end
end

local function waiting_event(task)
  local state = task.place == SCHEDULED and 'scheduled' or 'queued'
  return '{"type":"state","state":"' .. state .. '","when":' .. string.format('%.0f', task.due) .. '}'
end

-- The limits of a task that waits for a slot: the last is the one in whose line it is, or for which it was woken; of those before
-- it the task has a slot.
local function parked_at(key)
  local limits = {}
  for limit in string.gmatch(call('HGET', PARKED, key) or '', '[^\n]+') do limits[#limits + 1] = limit end
  return limits
end

-- Gives free slots of a limit to those first in line: the slot is theirs from now on, so a newcomer cannot take it.
local function wake_line(limit)
  local slots, line = SLOTS .. limit, LINE .. limit
  local most = tonumber(call('HGET', LIMITS, limit) or '0')
  for _ = 1, 100 do
    if call('SCARD', slots) >= most then break end
    local first = call('ZPOPMIN', line)
    if #first == 0 then break end
    local key = first[1]
    local bytes = call('HGET', TASKS, key)
    if bytes then
      local task = unpack_task(bytes)
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
    wake_line(limit)
  end
end

-- A task that waits in a limit's line, or was woken with slots kept for it, gives that up.
local function leave_line(key)
  local limits = parked_at(key)
  if #limits == 0 then return end
  call('HDEL', PARKED, key)
  for _, limit in ipairs(limits) do
    call('ZREM', LINE .. limit, key)
    call('SREM', SLOTS .. limit, 'w' .. key)
  end
  for _, limit in ipairs(limits) do wake_line(limit) end
end

-- A caller that runs a task by hand: its lease is not a worker's.
local function is_hand(worker)
  return string.find(worker, '~hand%-%x+$')
end

local function holds_by_hand(worker)
  return tonumber(call('ZSCORE', HAND_LEASES, worker) or '0') > (real_ms())
end

local function may_live(worker)
  if is_hand(worker) then return holds_by_hand(worker) end
  return call('ZSCORE', LEASES, worker) or call('SISMEMBER', DYING, worker) == 1
end

-- The run is over for the books. Its slots stay with it when its body may still be running.
local function end_run(key, run, keep_slots)
  call('HDEL', RUNNING, key)
  if has_flag(run, SUSPECT) then
    --- parts
    stop_suspect(key, run.worker)
  end
  drop_entries(stream_of_run(run), {entry_id(run)})
  if keep_slots and may_live(run.worker) then
    if run.limits ~= '' then call('HSET', GHOSTS, string.format('%.0f', run.epoch), pack_run(run)) end
  else
    release_slots(run)
  end
end

-- Takes a task out of wherever it is; a run of it loses its epoch.
local function withdraw(key, task)
  local run_bytes = call('HGET', RUNNING, key)
  if run_bytes then
    end_run(key, unpack_run(run_bytes), true)
    call('HDEL', PROGRESS, key)
  elseif task.place == SCHEDULED then
    call('ZREM', QUEUE, key)
  elseif task.place == UNKNOWN_FUNCTION then
    leave_unknown(key, task)
  elseif task.place ~= LINED then
    drop_entries(stream_of_task(task), {entry_id(task)})
  end
  if losses_of(task) >= SUSPECT_AFTER then
    --- parts
    leave_group(key)
  end
  leave_line(key)
end
