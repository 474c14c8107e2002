-- Fails waiting tasks whose function no live worker knows, for a worker that runs until all tasks
-- are finished.
-- ARGV[2]: msgpack {function, ttl ms, tail of the finished record, its event, most tasks to fail,
--   how to keep the failed tasks}.
-- Returns: number of failed tasks; 0 if a live worker knows the function.
-- uses: keys, records, letters, unknown_functions, removal, endings
local name, ttl, tail, event, most, letter = unpack(cmsgpack.unpack(ARGV[2]))
if is_known_elsewhere(name, '') then return 0 end
letter = letter_for(name, letter)
permit_when_full()
local failed, now = 0, server_ms()
local keys = call('ZRANGE', UNKNOWN_TASKS .. segment(name), 0, most - 1)
for _, key in ipairs(keys) do
  local bytes = call('HGET', TASKS, key)
  local task = bytes and unpack_task(bytes)
  if task and task.location == UNKNOWN_FUNCTION and task.name == name then
    remove_from_location(key, task)
    finish(key, FAILED_STATE, UNKNOWN_FUNCTION_KIND, nil, now, bytes, ttl, tail, event, letter)
    failed = failed + 1
  else
    call('ZREM', UNKNOWN_TASKS .. segment(name), key)
  end
end
forget_if_none_wait(name)
return failed
