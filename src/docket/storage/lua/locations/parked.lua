-- Tasks that wait for a slot of a limit. Leaving this location is a part of leave_waiters.
-- uses: keys, records, limit_slots, statistics, listing
local function is_reachable_parked(key)
  local limits = parked_limits(key)
  return #limits > 0 and call('ZSCORE', WAITERS .. limits[#limits], key)
end

local function count_parked()
  return call('HLEN', PARKED)
end

local function list_parked(_, page)
  scan_page(page, PARKED)
end

local MOST_RUNS, MOST_RUN_BYTES, MOST_HOLDERS = 5000, 1048576, 20

-- The runs of these epochs, as far as they are found: epoch → {key, worker}.
local function runs_of(epochs, wanted)
  local found, cursor, read, size = {}, '0', 0, 0
  repeat
    local page = call('HSCAN', RUNNING, cursor, 'COUNT', 500)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local run = unpack_run(page[2][i + 1])
      local epoch = run and string.format('%.0f', run.epoch)
      size = size + #page[2][i + 1]
      if epoch and epochs[epoch] and not found[epoch] then
        found[epoch] = {page[2][i], run.worker}
        wanted = wanted - 1
      end
    end
    read = read + #page[2] / 2
  until cursor == '0' or read >= MOST_RUNS or size >= MOST_RUN_BYTES or wanted <= 0
  return found
end

-- The holders of a limit's slots, the longest first: {key or '', worker or '', epoch or '0'}.
local function holders_of(limit)
  local epochs, reserved, wanted, count = {}, {}, {}, 0
  for _, holder in ipairs(call('SMEMBERS', SLOTS .. limit)) do
    local rest = string.sub(holder, 2)
    if string.sub(holder, 1, 1) == 'w' then reserved[#reserved + 1] = {rest, '', '0'} else epochs[#epochs + 1] = rest end
  end
  table.sort(epochs, function(a, b) return (tonumber(a) or 0) < (tonumber(b) or 0) end)
  local holders = {}
  for i = 1, math.min(#epochs, MOST_HOLDERS) do
    wanted[epochs[i]] = true
    count = count + 1
  end
  local found = count > 0 and runs_of(wanted, count) or {}
  for i = 1, count do
    local epoch = epochs[i]
    local replaced = not found[epoch] and call('HGET', REPLACED_RUNS, epoch)
    local run = replaced and unpack_run(replaced)
    local run_of = found[epoch] or {'', run and run.worker or ''}
    holders[#holders + 1] = {run_of[1], run_of[2], epoch}
  end
  for i = 1, math.min(#reserved, MOST_HOLDERS - count) do holders[#holders + 1] = reserved[i] end
  return holders
end

-- The rows of the statistics of a function: those of the last half hour, or of this hour and the
-- last one. Somebody else may have written to their keys.
local function explain_run_times(name, why)
  local RECENT_MINUTES = 30
  local rows, field, minute = {}, function_field(name), math.floor(why.now / MINUTE_MS)
  local function read(keys, number)
    local row = redis.pcall('HGET', keys .. string.format('%.0f', number), field)
    if type(row) == 'string' then rows[#rows + 1] = row end
  end
  if field == OTHERS then return end
  for number = minute - RECENT_MINUTES, minute do read(STATS_MINUTE, number) end
  if #rows == 0 then
    local hour = math.floor(minute / HOUR_MINUTES)
    for number = hour - 1, hour do read(STATS_HOUR, number) end
  end
  why.note('run_times', rows)
end

local function explain_parked(key, task, why)
  local limits = parked_limits(key)
  local limit = limits[#limits]
  if limit then
    why.note('limit', {limit, number_in(call('HGET', LIMITS, limit), 0), call('SCARD', SLOTS .. limit),
      call('ZCARD', WAITERS .. limit), call('ZRANK', WAITERS .. limit, key) or false, holders_of(limit)})
  end
  explain_run_times(task.name, why)
end
