-- Filters for lists of tasks. A filter is {state or -1, function name or false, key prefix or
-- false, due from, due before}, or false for all tasks. States: 0 scheduled, 1 queued, 2 running.
-- uses: keys, records, payloads

local function has_prefix(key, filter)
  local prefix = filter and filter[3]
  return not prefix or string.sub(key, 1, #prefix) == prefix
end

local function matches(filter, task, is_running)
  local state = is_running and 2 or (task.location == SCHEDULED and 0 or 1)
  if filter[1] >= 0 and filter[1] ~= state then return false end
  if filter[2] and filter[2] ~= task.name then return false end
  return task.due >= filter[4] and task.due < filter[5]
end

-- Observers show the headers of a call, and nothing else of it (docs/design/payloads.md). Longer
-- headers are not shown.
local MOST_HEADERS = 2000

local function headers_of(bytes)
  local length = #bytes >= 2 and struct.unpack('<H', bytes) or 0
  return length > 0 and length <= MOST_HEADERS and string.sub(bytes, 1, 2 + length) or false
end

local function add_if_matching(answer, filter, with_call, key, bytes, run)
  if not bytes then return end
  local size, headers = #bytes, false
  if filter or not with_call then
    local task = unpack_task(bytes)
    if filter and not matches(filter, task, run) then return end
    local apart = task.flags % 2 == 1 and #task.call > 4
    size = apart and struct.unpack('<I4', task.call) or #task.call
    if not with_call and apart then
      headers = headers_of(call('GETRANGE', named_payload(task.call), 0, MOST_HEADERS + 1))
    elseif not with_call then
      headers = headers_of(task.call)
      task.call = ''
      bytes = pack_task(task)
    end
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5] = key, bytes, size, run or false, headers
end
