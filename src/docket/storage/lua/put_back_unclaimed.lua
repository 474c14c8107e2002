-- Puts back the deliveries that a worker has not claimed: its event loop is blocked, and other
-- workers can run them. A later claim by this worker finds that the task has another entry.
-- ARGV[2]: msgpack {worker id, number of its deliveries to read}.
-- Returns: number of deliveries put back.
-- uses: keys, records, entries, placement
local worker, most = unpack(cmsgpack.unpack(ARGV[2]))
local put_back = 0
permit_when_full()
for _, stream in ipairs({STREAM, FRONT}) do
  for _, p in ipairs(pending_of(worker, stream, most)) do
    local entry = call('XRANGE', stream, p[1], p[1])[1]
    local key = entry and entry_key(entry[2])
    local bytes = key and call('HEXISTS', RUNNING, key) == 0 and call('HGET', TASKS, key)
    local task = bytes and unpack_task(bytes)
    if task and is_at(task, stream, p[1]) then
      drop_entries(stream, {p[1]})
      to_front(key, task)
      call('HSET', TASKS, key, pack_task(task))
      put_back = put_back + 1
    end
  end
end
return put_back
