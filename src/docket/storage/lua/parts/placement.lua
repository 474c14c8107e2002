-- Moves a task to its location: the stream, the front stream or the schedule.
-- uses: keys, records, numbers

local function drop_entries(stream, ids)
  if #ids > 0 then
    call('XACK', stream, GROUP, unpack(ids))
    call('XDEL', stream, unpack(ids))
  end
end

-- From so many entries on, it pays to ask for the oldest pending entry.
local MANY_ENTRIES = 16

-- Drops entries of runs that are over; `entries` has the milliseconds and the number of each.
--
-- To delete an entry by its id the server walks over its neighbours, deleted ones included, so many
-- entries together cost as much as the rest of the script. Entries are delivered in their order, so
-- all entries before the oldest pending one belong to runs that are over, and one command cuts them
-- off. Only the others are deleted one by one. If nothing is pending, the group may be a new one
-- that has delivered nothing yet.
-- twin of: id_text (records.lua)
local function drop_run_entries(stream, entries)
  if #entries == 0 then return end
  local ids, n, format, last_ms, beginning, texts = {}, 0, string.format, nil, nil, {}
  if #entries >= 2 * MANY_NUMBERS then
    --- parts
    texts = small_numbers()
  end
  for i = 1, #entries, 2 do
    local ms = entries[i]
    -- As in id_text, without a call for each entry.
    if ms ~= last_ms then last_ms, beginning = ms, format('%.0f-', ms) end
    n = n + 1
    local seq = entries[i + 1]
    ids[n] = beginning .. (texts[seq] or format('%d', seq))
  end
  call('XACK', stream, GROUP, unpack(ids))
  -- Without the group this is an error, which must not stop the script in the middle.
  local pending = n >= MANY_ENTRIES and redis.pcall('XPENDING', stream, GROUP, '-', '+', 1)
  local oldest = type(pending) == 'table' and pending[1]
  if oldest then
    local ms, seq = string.match(oldest[1], '^(%d+)-(%d+)$')
    ms, seq = tonumber(ms), tonumber(seq)
    local later = {}
    for i = 1, n do
      local entry_ms = entries[i + i - 1]
      if entry_ms >= ms and (entry_ms > ms or entries[i + i] > seq) then later[#later + 1] = ids[i] end
    end
    if #later < n then call('XTRIM', stream, 'MINID', oldest[1]) end
    ids = later
  end
  if #ids > 0 then call('XDEL', stream, unpack(ids)) end
end

-- The deliveries of a worker on a stream; none if the group does not exist.
local function pending_of(worker, stream, most)
  local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', most, worker)
  if type(pending) == 'table' and pending.err then return {} end
  return pending
end

-- The id of the last entry of a stream that was delivered; nil if the group does not exist.
local function last_delivered(stream)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if type(groups) ~= 'table' or groups.err then return nil end
  for _, group in ipairs(groups) do
    local fields = {}
    for i = 1, #group, 2 do fields[group[i]] = group[i + 1] end
    if fields['name'] == GROUP then return fields['last-delivered-id'] end
  end
end

-- Whether the entry of a task comes after the entry with that id.
local function is_after(task, id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  ms, seq = tonumber(ms), tonumber(seq)
  return task.entry_ms > ms or (task.entry_ms == ms and task.entry_seq > seq)
end

-- Whether a stream has undelivered entries. Delivered entries stay on the stream while their tasks
-- run.
local function has_undelivered(stream)
  local length = call('XLEN', stream)
  if length == 0 then return false end
  for _, row in ipairs(call('XINFO', 'GROUPS', stream)) do
    local group = {}
    for i = 1, #row, 2 do group[row[i]] = row[i + 1] end
    if group.name == GROUP then return length > group.pending end
  end
  return true
end

local function to_stream(key, task)
  task.location = IN_STREAM
  set_entry(task, call('XADD', STREAM, '*', 'k', key))
end

-- For a task that was ready before (reclaimed, requeued, woken by a limit): it goes before all
-- newer tasks.
local function to_front(key, task)
  task.location = IN_FRONT
  set_entry(task, call('XADD', FRONT, '*', 'k', key))
end

-- Stagers sleep until the earliest due time that they know, so an earlier one wakes them.
local function wait_for_time(key, due)
  call('ZADD', SCHEDULE, due, key)
  if call('ZRANGE', SCHEDULE, 0, 0)[1] == key then
    call('PUBLISH', CHANNELS .. 'wake/', string.format('%.3f', due))
  end
end

local function to_schedule(key, task)
  task.location, task.entry_ms, task.entry_seq = SCHEDULED, 0, 0
  wait_for_time(key, task.due)
end

local function to_stream_or_schedule(key, task, now)
  if task.due <= now then to_stream(key, task) else to_schedule(key, task) end
end

local function waiting_event(task)
  local state = task.location == SCHEDULED and 'scheduled' or 'queued'
  return '{"type":"state","state":"' .. state .. '","when":' .. string.format('%.0f', task.due) .. '}'
end
