-- Cancels a page of waiting tasks. Running tasks go on.
-- ARGV[2]: msgpack {cursor, count, ttl ms}.
-- Returns: next cursor ('0' at the end), number of cancelled tasks.
-- uses: keys, records, removal, endings
local cursor, count, ttl = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local page = call('HSCAN', TASKS, cursor, 'COUNT', count)
local removed = 0
for i = 1, #page[2], 2 do
  local key, bytes = page[2][i], call('HGET', TASKS, page[2][i])
  local task = bytes and unpack_task(bytes)
  if task and not is_unknown_location(task) and call('HEXISTS', RUNNING, key) == 0 then
    remove_from_location(key, task)
    finish_cancelled(key, nil, now, bytes, ttl)
    removed = removed + 1
  end
end
return {page[1], removed}
