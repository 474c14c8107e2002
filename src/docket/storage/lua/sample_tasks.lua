-- Counts unfinished tasks by function and state, in a random sample.
-- ARGV[2]: msgpack {number of tasks to read}.
-- Returns: number of all tasks, number of tasks that were read, then per function: name, scheduled,
--   queued, running.
-- uses: keys, records
local count = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HRANDFIELD', TASKS, count, 'WITHVALUES')
local any_running = call('EXISTS', RUNNING) == 1
local counts, answer = {}, {call('HLEN', TASKS), #page / 2}
for i = 1, #page, 2 do
  local task = unpack_task(page[i + 1])
  local known = counts[task.name] or {0, 0, 0}
  local running = any_running and call('HEXISTS', RUNNING, page[i]) == 1
  local state = running and 3 or (task.location == SCHEDULED and 1 or 2)
  known[state] = known[state] + 1
  counts[task.name] = known
end
for name, known in pairs(counts) do answer[#answer + 1] = {name, known[1], known[2], known[3]} end
return answer
