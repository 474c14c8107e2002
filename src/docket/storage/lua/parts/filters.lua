-- Filters for lists of tasks. A filter is {state or -1, function name or false, key prefix or
-- false, due from, due before}, or false for all tasks. States: 0 scheduled, 1 queued, 2 running.
-- uses: records

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

local function add_if_matching(answer, filter, with_call, key, bytes, run)
  if not bytes then return end
  local size = #bytes
  if filter or not with_call then
    local task = unpack_task(bytes)
    if filter and not matches(filter, task, run) then return end
    local apart = task.flags % 2 == 1 and #task.call > 4
    size = apart and struct.unpack('<I4', task.call) or #task.call
    if not with_call and not apart then
      task.call = ''
      bytes = pack_task(task)
    end
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = key, bytes, size, run or false
end
