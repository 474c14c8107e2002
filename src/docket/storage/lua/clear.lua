-- Cancels a page of waiting tasks that match a filter. Running tasks go on.
-- ARGV[2]: msgpack {cursor, count, ttl ms, only this state (0 scheduled, 1 queued) or -1, function
--   name or false, key prefix or false, whether the chains of automatic tasks stay cancelled, as
--   after a cancel (0/1)}.
-- Returns: next cursor ('0' at the end), number of cancelled tasks.
-- uses: keys, records, removal, endings
local cursor, count, ttl, state, name, prefix, ends_chains = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local page = call('HSCAN', TASKS, cursor, 'COUNT', count)
local removed = 0

local function matches(key, task)
  if prefix and string.sub(key, 1, #prefix) ~= prefix then return false end
  return (not name or name == task.name) and (state < 0 or state == (task.location == SCHEDULED and 0 or 1))
end

for i = 1, #page[2], 2 do
  local key, bytes = page[2][i], call('HGET', TASKS, page[2][i])
  local task = bytes and unpack_task(bytes)
  if task and matches(key, task) and not is_unknown_location(task) and call('HEXISTS', RUNNING, key) == 0 then
    if ends_chains == 1 then keep_chain_cancelled(key) end
    remove_from_location(key, task)
    finish_cancelled(key, nil, now, bytes, ttl)
    removed = removed + 1
  end
end
return {page[1], removed}
