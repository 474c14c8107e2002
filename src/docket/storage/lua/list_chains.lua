-- Lists a page of automatic tasks.
-- ARGV[2]: msgpack {cursor, number of tasks to read}.
-- Returns: next cursor ('0' at the end), then per
--   task: name, task record without its call or false,
--   run record or false, when its chain was cancelled or false, the note that it is buried or
--   false, number of workers that know it.
-- uses: keys, records
local cursor, count = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('SSCAN', AUTOMATIC, cursor, 'COUNT', count)
local answer = {page[1]}
for _, name in ipairs(page[2]) do
  local bytes, n = call('HGET', TASKS, name), #answer
  if bytes then
    local task = unpack_task(bytes)
    task.call = ''
    bytes = pack_task(task)
  end
  answer[n + 1], answer[n + 2], answer[n + 3] = name, bytes, call('HGET', RUNNING, name)
  answer[n + 4], answer[n + 5] = call('HGET', CANCELLED_CHAINS, name), call('HGET', BURIED_CHAINS, name)
  answer[n + 6] = call('SCARD', TASK_WORKERS .. segment(name))
end
return answer
