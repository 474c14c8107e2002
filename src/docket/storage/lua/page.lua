-- A page of unfinished tasks, arguments cut off unless asked for.
-- KEYS: all. ARGV[2]: msgpack {cursor, count, with calls (0/1)}.
-- Returns: next cursor ('0' at the end), then per task: key, task record, run record or false.
--- include keys
--- include records
local cursor, count, with_calls = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HSCAN', TASKS, cursor, 'COUNT', count)
local answer, keys = {page[1]}, {}
for i = 1, #page[2], 2 do keys[#keys + 1] = page[2][i] end
if #keys == 0 then return answer end
local any_running = call('EXISTS', RUNNING) == 1
for first = 1, #keys, 500 do
  local runs = any_running and call('HMGET', RUNNING, unpack(keys, first, math.min(first + 499, #keys))) or {}
  for i = first, math.min(first + 499, #keys) do
    local bytes = page[2][i * 2]
    if with_calls == 0 then
      local task = unpack_task(bytes)
      task.call = ''
      bytes = pack_task(task)
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = keys[i], bytes, runs[i - first + 1] or false
  end
end
return answer
