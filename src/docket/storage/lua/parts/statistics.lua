-- Counts endings per function and minute (docs/design/statistics.md). ledger/statistics.py has the
-- same numbers; a test compares the two.
-- uses: keys, history

-- The keys of a row.
local MOST_MEASURED = 1e12

-- How long a minute lives before and after it is folded, and how long an hour lives.
local OPEN_MS, FOLDED_MS, HOUR_MS = 2678400000, 10800000, 2592000000
-- If there are more open minutes, the script that opens another one folds the oldest.
local MOST_OPEN = 120
-- Fields: the mark, all functions without rows of their own, and the prefix of a function.
-- How many entries of the history a function may have in a minute: so many at once, and one more
-- for each of these times.
local FAILURES_AT_ONCE, FAILURE_EVERY_MS, SAMPLES_AT_ONCE, SAMPLE_EVERY_MS = 20, 2000, 5, 6000
local IS_OPEN, IS_FOLDED = '0', '1'

-- The function's name in a task record. Bytes that are not a record may give any name.
local function name_in(task_bytes)
  local low, high = string.byte(task_bytes, TASK_NAME_LENGTH_AT, TASK_NAME_LENGTH_AT + 1)
  return string.sub(task_bytes, TASK_HEADER_SIZE + 1, TASK_HEADER_SIZE + (low or 0) + 256 * (high or 0))
end

local function function_field(name)
  return #name <= LONGEST_COUNTED_NAME and FUNCTION_FIELD .. name or OTHERS
end

-- Bytes that are not a row count as an empty one: a script that ends runs must not fail because of
-- statistics.
local function read_row(bytes)
  local is_read, row = pcall(cmsgpack.unpack, bytes)
  return is_read and type(row) == 'table' and row or {}
end

local function add_to_row(row, added)
  for at, number in pairs(added) do
    local before = row[at]
    row[at] = (type(before) == 'number' and before or 0) + number
  end
  return row
end

-- Whether a function has rows of its own. The answer stays the same from minute to minute, so that
-- all counts of a function are in its rows, or none.
local function has_rows(name, minute)
  if not call('ZSCORE', STATS_FUNCTIONS, name) then
    local most = call('EXISTS', TASK_WORKERS .. segment(name)) == 1 and MOST_COUNTED or MOST_UNKNOWN_COUNTED
    if call('ZCARD', STATS_FUNCTIONS) >= most then
      call('ZREMRANGEBYSCORE', STATS_FUNCTIONS, '-inf', minute - FORGOTTEN_MINUTES)
      if call('ZCARD', STATS_FUNCTIONS) >= most then return false end
    end
  end
  call('ZADD', STATS_FUNCTIONS, minute, name)
  call('PEXPIRE', STATS_FUNCTIONS, OPEN_MS)
  return true
end

-- Writes the entries of the history for which this minute has room, and counts them in the `row`
-- that is added to the row so far. `finished` is a list as for add_to_history; `has_others` is true
-- if it may contain failures.
local function keep_finished(finished, row, so_far, now)
  local ms, samples, failures = now % MINUTE_MS, tonumber(so_far[SAMPLES]) or 0, tonumber(so_far[FAILURES]) or 0
  local sample_room = math.min(SAMPLES_AT_ONCE + math.floor(ms / SAMPLE_EVERY_MS) - samples, 1)
  local failure_room = finished.has_others and FAILURES_AT_ONCE + math.floor(ms / FAILURE_EVERY_MS) - failures or 0
  if sample_room > 0 or failure_room > 0 then
    --- parts
    local failed, others = 0, 0
    for kind = 1, LAST_KIND do
      local number = tonumber(so_far[KINDS + kind]) or 0
      if FAILURE_KINDS[kind] then failed = failed + number else others = others + number end
    end
    local added, sampled = add_to_history(finished, now, failure_room, sample_room, failed - failures, others - samples)
    if added > 0 then row[FAILURES] = added end
    if sampled > 0 then row[SAMPLES] = sampled end
  end
end

-- Adds lists of endings together.
local function add_finished(list, added)
  if not list then return added end
  for _, f in ipairs(added) do list[#list + 1] = f end
  list.has_others = list.has_others or added.has_others
  return list
end

-- Adds rows (field → row) to a hash. Rows of functions that have none are moved to the others, if
-- the hash is a `minute`. `finished` (field → list) has endings for the history, or is nil;
-- `keep` is keep_finished. Returns the mark of the hash, or false if the hash is new.
local function add_rows(hash, rows, minute, finished, keep, now)
  local fields, n = {MARK, OTHERS}, 2
  for field in pairs(rows) do
    if field ~= OTHERS then
      n = n + 1
      fields[n] = field
    end
  end
  local found = call('HMGET', hash, unpack(fields))
  local values, size = {}, 0
  for i = 3, n do
    local field, bytes = fields[i], found[i]
    if bytes or not minute or has_rows(string.sub(field, 2), minute) then
      local row, so_far = rows[field], bytes and read_row(bytes)
      if finished and finished[field] then keep(finished[field], row, so_far or {}, now) end
      values[size + 1], values[size + 2] = field, cmsgpack.pack(so_far and add_to_row(so_far, row) or row)
      size = size + 2
    else
      rows[OTHERS], rows[field] = add_to_row(rows[OTHERS] or {}, rows[field]), nil
      if finished and finished[field] then finished[OTHERS] = add_finished(finished[OTHERS], finished[field]) end
    end
  end
  local others = rows[OTHERS]
  if others then
    local so_far = found[2] and read_row(found[2])
    if finished and finished[OTHERS] then keep(finished[OTHERS], others, so_far or {}, now) end
    values[size + 1], values[size + 2] = OTHERS, cmsgpack.pack(so_far and add_to_row(so_far, others) or others)
    size = size + 2
  end
  if not found[1] then values[size + 1], values[size + 2] = MARK, IS_OPEN end
  call('HSET', hash, unpack(values))
  return found[1]
end

local function add_to_hour(minute, rows)
  local hash = STATS_HOUR .. string.format('%.0f', math.floor(minute / HOUR_MINUTES))
  if not add_rows(hash, rows) then call('PEXPIRE', hash, HOUR_MS) end
end

-- Adds the rows of a minute to its hour, unless that was done before.
local function fold_minute(minute)
  local hash, rows, mark = STATS_MINUTE .. minute, {}, nil
  local fields = call('HGETALL', hash)
  for i = 1, #fields, 2 do
    if fields[i] == MARK then mark = fields[i + 1] else rows[fields[i]] = read_row(fields[i + 1]) end
  end
  if mark ~= IS_FOLDED and next(rows) then
    add_to_hour(minute, rows)
    call('HSET', hash, MARK, IS_FOLDED)
    call('PEXPIRE', hash, FOLDED_MS)
  end
end

-- Adds rows to the minute of `now`, and to its hour if the minute is folded already.
local function count_rows(rows, now, finished)
  local minute = math.floor(now / MINUTE_MS)
  local hash = STATS_MINUTE .. string.format('%.0f', minute)
  local mark = add_rows(hash, rows, minute, finished, keep_finished, now)
  if mark == IS_FOLDED then
    --- parts
    add_to_hour(minute, rows)
  elseif not mark then
    --- parts
    call('PEXPIRE', hash, OPEN_MS)
    call('ZADD', STATS_OPEN, minute, string.format('%.0f', minute))
    call('PEXPIRE', STATS_OPEN, OPEN_MS)
    if call('ZCARD', STATS_OPEN) > MOST_OPEN then fold_minute(call('ZPOPMIN', STATS_OPEN)[1]) end
  end
end

-- A script that ends tasks must not fail because of statistics. If somebody else has written to
-- their keys, the ending is not counted, and the data is deleted, so that the next one is.
local function count_safely(count, rows, now, finished)
  local is_counted, problem = pcall(count, rows, now, finished)
  if not is_counted then
    local minute = math.floor((now or server_ms()) / MINUTE_MS)
    drop_unless(STATS_OPEN, 'zset')
    drop_unless(STATS_FUNCTIONS, 'zset')
    drop_unless(STATS_MINUTE .. string.format('%.0f', minute), 'hash')
    drop_unless(STATS_HOUR .. string.format('%.0f', math.floor(minute / HOUR_MINUTES)), 'hash')
    redis.log(redis.LOG_WARNING, 'docket: endings were not counted: ' .. tostring(type(problem) == 'table' and problem.err or problem))
  end
end

-- Counts one ending that no settlement tells of. A docket that keeps finished tasks for `ttl` 0 has
-- no history. `event` and `keep_ms` as for add_to_history.
local function count_ending(key, task_bytes, kind, now, run, ttl, event, keep_ms)
  local field = function_field(name_in(task_bytes))
  local finished = ttl > 0 and {[field] = {{kind, key, task_bytes, run, -1, event, keep_ms}, has_others = true}} or nil
  count_safely(count_rows, {[field] = {[KINDS + kind] = 1}}, now, finished)
end

-- Counts cells: function → {cell → number, -1 → sum of the first measure, -2 → of the second, …}.
-- `finished`: function → endings for the history.
local function count_cells(cells_of, now, finished)
  local rows, floor = {}, math.floor
  local finished_of = finished and {}
  for name, cells in pairs(cells_of) do
    local field = function_field(name)
    if finished then finished_of[field] = add_finished(finished_of[field], finished[name]) end
    local row = rows[field] or {}
    rows[field] = row
    for cell, number in pairs(cells) do
      if cell < 0 then
        local at = MEASURE_KEYS[-cell]
        if number > 0 and number < MOST_MEASURED then row[at] = (row[at] or 0) + number end
      else
        local kind, run, wait = floor(cell / KIND_CELL), floor(cell / RUN_CELL) % RUN_CELL, cell % RUN_CELL
        row[KINDS + kind] = (row[KINDS + kind] or 0) + number
        if run ~= NO_TIME then
          local at = (kind == SUCCEEDED_KIND and SUCCEEDED_RUNS or OTHER_RUNS) + run
          row[at] = (row[at] or 0) + number
        end
        if wait ~= NO_TIME then row[WAITING_TIMES + wait] = (row[WAITING_TIMES + wait] or 0) + number end
      end
    end
  end
  count_safely(count_rows, rows, now, finished_of)
end
