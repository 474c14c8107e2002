-- Counts a page of unfinished tasks by function and state.
-- ARGV[2]: msgpack {cursor, number of tasks to read}.
-- Returns: next cursor ('0' at the end), then per function: name, scheduled, queued, running,
--   earliest due time, held (they count as queued, too).
-- uses: keys, records
local cursor, count = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HSCAN', TASKS, cursor, 'COUNT', count)
local any_running = call('EXISTS', RUNNING) == 1
local counts, answer = {}, {page[1]}
for i = 1, #page[2], 2 do
  local key, task = page[2][i], unpack_task(page[2][i + 1])
  local known = counts[task.name] or {0, 0, 0, task.due, 0}
  local running = any_running and call('HEXISTS', RUNNING, key) == 1
  local state = running and 3 or (task.location == SCHEDULED and 1 or 2)
  known[state] = known[state] + 1
  known[4] = math.min(known[4], task.due)
  if task.location == HELD and not running then known[5] = known[5] + 1 end
  counts[task.name] = known
end
for name, known in pairs(counts) do
  answer[#answer + 1] = {name, known[1], known[2], known[3], known[4], known[5]}
end
return answer
