-- Changes the progress of tasks and publishes an event for each change.
-- ARGV[2]: msgpack list of {key, epoch of the run that writes, or 0 for any other writer, amount to
--   add or false, current or false, total or false, message as JSON or false}.
-- Returns: per item the new progress (the JSON of the event), 0 if the run no longer counts, 1 if
--   there is no such task (or only a newer release knows its location).
-- uses: keys, records
local NOT_RUNNING, NOT_FOUND = 0, 1
permit_when_full()
local now, items, answer = server_ms(), cmsgpack.unpack(ARGV[2]), {}

local function number(value)
  return string.format('%.17g', value)
end

-- The scripts that end or move the task read the progress only if they find this mark.
local function mark(key, bytes)
  local flags = flags_of(bytes)
  if #bytes >= TASK_HEADER_SIZE and not has_progress(flags) then
    local marked = string.char(flags + HAS_PROGRESS)
    call('HSET', TASKS, key, string.sub(bytes, 1, TASK_FLAGS_AT - 1) .. marked .. string.sub(bytes, TASK_FLAGS_AT + 1))
  end
end

for i, item in ipairs(items) do
  local key, epoch, amount, new_current, new_total, new_message = unpack(item)
  local run_bytes = call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  local task = epoch == 0 and call('HGET', TASKS, key)
  if epoch ~= 0 and (not run or run.epoch ~= epoch) then
    answer[i] = NOT_RUNNING
  elseif epoch == 0 and (not task or is_unknown_location(unpack_task(task))) then
    answer[i] = NOT_FOUND
  else
    local current, total, message = string.match(call('HGET', PROGRESS, key) or '',
      '^{"type":"progress","current":([^,]+),"total":([^,]+),"message":(.*),"updated_at":%d+}$')
    if not current then current, total, message = 'null', '100', 'null' end
    if run and current == 'null' then current = '0' end
    if new_current then current = number(new_current) end
    if amount then current = number((tonumber(current) or 0) + amount) end
    if new_total then total = number(new_total) end
    if new_message then message = new_message end
    local text = '{"type":"progress","current":' .. current .. ',"total":' .. total .. ',"message":' .. message ..
      ',"updated_at":' .. string.format('%.0f', now) .. '}'
    call('HSET', PROGRESS, key, text)
    if task then mark(key, task) end
    publish(key, text)
    answer[i] = text
  end
end
return answer
