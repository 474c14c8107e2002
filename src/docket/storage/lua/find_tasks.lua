-- Finds unfinished tasks that match a filter, in the order in which they run where they have one.
-- It reads so many tasks and so many bytes at most, and answers where to go on.
-- ARGV[2]: msgpack {source, cursor or '', most tasks to find, most tasks to read, filter}.
--   source: 0 running, 1 front stream, 2 stream, 3 parked, 4 waits for a worker that knows its
--     function, 5 held, 6 scheduled.
--   filter: {function, key prefix, part of the key, bytes in the headers of the call, due from,
--     due before, name of the worker}; false for each that is not given.
-- Returns: where to go on, or '' at the end; number of tasks read; then per task: key, task record
--   without its call, size of the call, run record or false, headers of the call or false; its
--   progress, the rule that holds it or the limits that it waits for, or false.
-- uses: keys, records, entries, payloads, filters
local source, cursor, most, most_read, filter = unpack(cmsgpack.unpack(ARGV[2]))
local name, prefix, part, shown, from, before, worker = unpack(filter)
local MOST_BYTES, CHUNK = 262144, 50
local sub, find = string.sub, string.find
local RUNNING_TASKS, FRONT_STREAM, READY_STREAM, WAITING_TASKS, UNKNOWN_ONES, HELD_ONES, LATER = 0, 1, 2, 3, 4, 5, 6
local following = ''
-- Per task: key, run record or note, position in the source.
local keys, notes, positions = {}, {}, {}

local function number(value) return string.format('%.17g', value) end

local function scan(hash)
  local page = call('HSCAN', hash, cursor == '' and '0' or cursor, 'COUNT', most_read)
  following = page[1] == '0' and '' or page[1]
  for i = 1, #page[2], 2 do
    keys[#keys + 1] = page[2][i]
    notes[#keys] = page[2][i + 1]
  end
end

local function read_stream(stream)
  local page = redis.pcall('XRANGE', stream, cursor == '' and '-' or '(' .. cursor, '+', 'COUNT', most_read)
  if page.err then return end
  for i, entry in ipairs(page) do
    keys[i] = entry_key(entry[2]) or ''
    positions[i] = entry[1]
  end
  if #page == most_read then following = positions[#page] end
end

-- A cursor is the due time and the key of the last task that was read.
local function read_schedule()
  local low = from and number(from) or '-inf'
  local last_due, last_key = string.match(cursor, '^(%S+) (.*)$')
  local rank
  if last_due then
    local score = call('ZSCORE', SCHEDULE, last_key)
    rank = score and tonumber(score) == tonumber(last_due) and call('ZRANK', SCHEDULE, last_key) + 1
      or call('ZCOUNT', SCHEDULE, '-inf', '(' .. last_due)
  else
    rank = call('ZCOUNT', SCHEDULE, '-inf', '(' .. low)
  end
  local page = call('ZRANGE', SCHEDULE, rank, rank + most_read - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    if before and tonumber(page[i + 1]) >= before then return end
    keys[#keys + 1] = page[i]
    positions[#keys] = number(tonumber(page[i + 1])) .. ' ' .. page[i]
  end
  if #keys == most_read then following = positions[#keys] end
end

-- A cursor is the position of the last task of a function, and the name of the function.
local function read_unknown()
  local last_score, last_name = string.match(cursor, '^(%S+) (.*)$')
  local functions = call('HKEYS', UNKNOWN_SINCE)
  table.sort(functions)
  for _, one in ipairs(functions) do
    if (not last_name or one >= last_name) and (not name or one == name) then
      local low = one == last_name and '(' .. last_score or '-inf'
      local page = call('ZRANGE', UNKNOWN_TASKS .. segment(one), low, '+inf', 'BYSCORE', 'LIMIT', 0, most_read - #keys, 'WITHSCORES')
      for i = 1, #page, 2 do
        keys[#keys + 1] = page[i]
        positions[#keys] = number(tonumber(page[i + 1])) .. ' ' .. one
      end
      if #keys >= most_read then
        following = positions[#keys]
        return
      end
    end
  end
end

if source == RUNNING_TASKS then
  scan(RUNNING)
elseif source == FRONT_STREAM then
  read_stream(FRONT)
elseif source == READY_STREAM then
  read_stream(STREAM)
elseif source == WAITING_TASKS then
  scan(PARKED)
elseif source == UNKNOWN_ONES then
  read_unknown()
elseif source == HELD_ONES then
  scan(HELD_BY)
else
  read_schedule()
end

local LOCATIONS = {[FRONT_STREAM] = IN_FRONT, [READY_STREAM] = IN_STREAM, [WAITING_TASKS] = WAITING_FOR_SLOT,
  [UNKNOWN_ONES] = UNKNOWN_FUNCTION, [HELD_ONES] = HELD, [LATER] = SCHEDULED}

local function key_matches(key)
  return (not prefix or sub(key, 1, #prefix) == prefix) and (not part or find(key, part, 1, true))
end

local function is_of_worker(run_bytes)
  local run = unpack_run(run_bytes)
  return run and sub(run.worker, 1, #worker + 1) == worker .. '~'
end

local answer, examined, bytes_read, found = {following, 0}, 0, 0, 0

-- A filter matches few tasks: most records need not be read further. Positions are counted from 1.
local NAME_SIZE_AT = TASK_HEADER_SIZE - 1

local function may_match(bytes)
  if name then
    local low, high = string.byte(bytes, NAME_SIZE_AT, TASK_HEADER_SIZE)
    if (low or 0) + 256 * (high or 0) ~= #name or sub(bytes, TASK_HEADER_SIZE + 1, TASK_HEADER_SIZE + #name) ~= name then
      return false
    end
  end
  return not shown or flags_of(bytes) % 2 == 1 or find(bytes, shown, 1, true)
end

-- Adds a task to the answer, if it is the one that this source names and if it matches.
local function add(i, bytes, run, progress)
  if not bytes or not key_matches(keys[i]) or (run and true or false) ~= (source == RUNNING_TASKS) then return end
  if worker and not (run and is_of_worker(run)) or not may_match(bytes) then return end
  local task = unpack_task(bytes)
  if not run then
    if task.location ~= LOCATIONS[source] and not task.broken then return end
    if positions[i] and source <= READY_STREAM and entry_id(task) ~= positions[i] and not task.broken then return end
  end
  if name and task.name ~= name or from and task.due < from or before and task.due >= before then return end
  local apart = task.flags % 2 == 1 and #task.call > 4
  local size = apart and struct.unpack('<I4', task.call) or #task.call
  local headers = headers_of(apart and call('GETRANGE', named_payload(task.call), 0, MOST_HEADERS + 1) or task.call)
  if shown and not (headers and find(headers, shown, 1, true)) then return end
  task.call = ''
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = keys[i], pack_task(task), size
  answer[n + 4], answer[n + 5], answer[n + 6] = run or false, headers, progress or not run and notes[i] or false
  found = found + 1
end

local any_running = source ~= RUNNING_TASKS and call('EXISTS', RUNNING) == 1
local any_progress = source == RUNNING_TASKS and call('EXISTS', PROGRESS) == 1
local can_stop = #positions > 0
for first = 1, #keys, CHUNK do
  local last = math.min(first + CHUNK - 1, #keys)
  local tasks = call('HMGET', TASKS, unpack(keys, first, last))
  local runs = any_running and call('HMGET', RUNNING, unpack(keys, first, last))
  local progress = any_progress and call('HMGET', PROGRESS, unpack(keys, first, last))
  for i = first, last do
    local bytes = tasks[i - first + 1]
    local run = source == RUNNING_TASKS and notes[i] or runs and runs[i - first + 1] or false
    add(i, bytes, run, progress and progress[i - first + 1])
    examined, bytes_read = examined + 1, bytes_read + (bytes and #bytes or 0)
    if can_stop and (found >= most or bytes_read > MOST_BYTES) and i < #keys then
      answer[1], answer[2] = positions[i], examined
      return answer
    end
  end
end
answer[2] = examined
return answer
