-- Lists a page of unfinished tasks that match a filter, without their arguments unless requested.
-- ARGV[2]: msgpack {source (0 all tasks, 1 running tasks), cursor, number of tasks to read, with
--   calls (0/1), filter (parts/filters.lua)}.
-- Returns: next cursor ('0' at the end), bytes read, then per task: key, task record, size of its
--   call (of the whole record if there is no filter and calls are included), run record or false,
--   headers of its call or false (if calls are not included).
-- uses: keys, filters
local source, cursor, count, with_calls, filter = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HSCAN', source == 1 and RUNNING or TASKS, cursor, 'COUNT', count)
local found, keys, records = page[2], {}, {}
local bytes_read = 0
for i = 1, #found, 2 do
  bytes_read = bytes_read + #found[i + 1]
  if has_prefix(found[i], filter) then
    keys[#keys + 1] = found[i]
    records[#keys] = found[i + 1]
  end
end
local answer = {page[1], bytes_read}
local any_running = call('EXISTS', RUNNING) == 1

for first = 1, #keys, 500 do
  local last = math.min(first + 499, #keys)
  local tasks = source == 1 and call('HMGET', TASKS, unpack(keys, first, last))
  local runs = source == 0 and any_running and call('HMGET', RUNNING, unpack(keys, first, last))
  for i = first, last do
    local bytes, run = records[i], runs and runs[i - first + 1]
    if source == 1 then bytes, run = tasks[i - first + 1], records[i] end
    add_if_matching(answer, filter, with_calls == 1, keys[i], bytes, run)
  end
end
return answer
