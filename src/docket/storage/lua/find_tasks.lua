-- Finds unfinished tasks that match a filter, in the order in which they run where they have one.
-- It reads so many tasks and so many bytes at most, and answers where to go on.
-- ARGV[2]: msgpack {source, cursor or '', most tasks to find, most tasks to read, with calls (0/1),
--   filter}.
--   source: a location, RUNNING_TASKS, EVERY_TASK or QUEUED_TASKS (storage/schema/locations.py).
--   filter: {function, key prefix, part of the key, bytes in the headers of the call, due from,
--     due before, name of the worker}; false for each that is not given.
-- Returns: where to go on, or '' at the end; number of tasks read; bytes of their records; then per
--   task: key, task record, run record or false, its progress, the rule that holds it, the limits
--   that it waits for or false, size of the call, headers of the call or false. If calls are
--   included, the last two are 0 and false; else the record has no call.
-- uses: keys, records, payloads, listing, locations
local source, cursor, most, most_read, with_calls, filter = unpack(cmsgpack.unpack(ARGV[2]))
local name, prefix, part, shown, from, before, worker = unpack(filter)
local MOST_BYTES, CHUNK = 262144, 50
local sub, find = string.sub, string.find
-- Per task: key, position in the source. Values are run records, notes, or the tasks themselves.
local page = {cursor = cursor, most = most_read, name = name, from = from, before = before, keys = {}, values = {}, positions = {}, following = ''}
if source == RUNNING_TASKS then
  scan_page(page, RUNNING)
elseif source >= EVERY_TASK then
  scan_page(page, TASKS)
else
  list_location(source, page)
end
local keys, values, positions = page.keys, page.values, page.positions

local function key_matches(key)
  return (not prefix or sub(key, 1, #prefix) == prefix) and (not part or find(key, part, 1, true))
end

local function is_of_worker(run_bytes)
  local run = unpack_run(run_bytes)
  return run and sub(run.worker, 1, #worker + 1) == worker .. '~'
end

-- Observers show the headers of a call, and nothing else of it (docs/design/payloads.md). Longer
-- headers are not shown.
local MOST_HEADERS = 2000

local function headers_of(bytes)
  local length = #bytes >= 2 and struct.unpack('<H', bytes) or 0
  return length > 0 and length <= MOST_HEADERS and string.sub(bytes, 1, 2 + length) or false
end

local answer, examined, bytes_read, found = {page.following, 0, 0}, 0, 0, 0
local has_filter = name or prefix or part or shown or from or before or worker
local reads_all = source == EVERY_TASK and with_calls == 1 and not has_filter

local function answer_with(key, bytes, run, note, size, headers)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = key, bytes, run or false, note or false
  answer[n + 5], answer[n + 6] = size, headers
  found = found + 1
end

-- A filter matches few tasks: most records need not be read further. Positions are counted from 1.

local function may_match(bytes)
  if name then
    local low, high = string.byte(bytes, TASK_NAME_LENGTH_AT, TASK_HEADER_SIZE)
    if (low or 0) + 256 * (high or 0) ~= #name or sub(bytes, TASK_HEADER_SIZE + 1, TASK_HEADER_SIZE + #name) ~= name then
      return false
    end
  end
  return not shown or flags_of(bytes) % 2 == 1 or find(bytes, shown, 1, true)
end

-- Whether this source has the waiting task, which a stream may name more than once.
local function is_here(i, task)
  if source == QUEUED_TASKS then return task.location ~= SCHEDULED end
  if task.broken then return true end
  local is_entry = source == IN_STREAM or source == IN_FRONT
  return task.location == source and not (is_entry and entry_id(task) ~= positions[i])
end

-- Adds a task to the answer, if it is the one that this source names and if it matches.
local function add(i, bytes, run, note)
  if not bytes then return end
  if reads_all then return answer_with(keys[i], bytes, run, false, 0, false) end
  if not key_matches(keys[i]) then return end
  if source ~= EVERY_TASK and (run and true or false) ~= (source == RUNNING_TASKS) then return end
  if worker and not (run and is_of_worker(run)) or not may_match(bytes) then return end
  local task = unpack_task(bytes)
  if not run and source ~= EVERY_TASK and not is_here(i, task) then return end
  if name and task.name ~= name or from and task.due < from or before and task.due >= before then return end
  if with_calls == 1 and not shown then return answer_with(keys[i], bytes, run, note, 0, false) end
  local apart = task.flags % 2 == 1 and #task.call > 4
  local size = apart and struct.unpack('<I4', task.call) or #task.call
  local headers = headers_of(apart and call('GETRANGE', named_payload(task.call), 0, MOST_HEADERS + 1) or task.call)
  if shown and not (headers and find(headers, shown, 1, true)) then return end
  if with_calls == 1 then return answer_with(keys[i], bytes, run, note, 0, false) end
  task.call = ''
  answer_with(keys[i], pack_task(task), run, note, size, headers)
end

local has_runs, has_tasks = source == RUNNING_TASKS, source >= EVERY_TASK
local any_running = not has_runs and call('EXISTS', RUNNING) == 1
local any_progress = has_runs and call('EXISTS', PROGRESS) == 1
local can_stop = #positions > 0
for first = 1, #keys, CHUNK do
  local last = math.min(first + CHUNK - 1, #keys)
  local tasks = not has_tasks and call('HMGET', TASKS, unpack(keys, first, last))
  local runs = any_running and call('HMGET', RUNNING, unpack(keys, first, last))
  local progress = any_progress and call('HMGET', PROGRESS, unpack(keys, first, last))
  for i = first, last do
    local at = i - first + 1
    local bytes = has_tasks and values[i] or not has_tasks and tasks[at]
    if has_runs then
      add(i, bytes, values[i], progress and progress[at])
    else
      add(i, bytes, runs and runs[at], not has_tasks and values[i])
    end
    examined, bytes_read = examined + 1, bytes_read + (bytes and #bytes or 0)
    if can_stop and (found >= most or bytes_read > MOST_BYTES) and i < #keys then
      answer[1], answer[2], answer[3] = positions[i], examined, bytes_read
      return answer
    end
  end
end
answer[2], answer[3] = examined, bytes_read
return answer
