-- Moves a task of the schedule to another time, or to the stream if that time has come.
-- ARGV[2]: msgpack {key, due ms (0: now), due time that the caller has seen, or false}.
-- Returns: 1 moved, 0 the key has no unfinished task, 2 the task is not in the schedule, 3 it has
--   another due time than the caller has seen; due time of the task.
-- uses: keys, records, placement, direct_delivery
local key, due, seen = unpack(cmsgpack.unpack(ARGV[2]))
local bytes = call('HGET', TASKS, key)
if not bytes then return {0, '0'} end
local task = unpack_task(bytes)

local function number(value) return string.format('%.17g', value) end

if task.broken or task.location ~= SCHEDULED or call('HEXISTS', RUNNING, key) == 1 then return {2, number(task.due)} end
if seen and math.abs(task.due - seen) >= 1 then return {3, number(task.due)} end
local now, now_us = server_ms()
task.due = due <= 0 and now or due
if task.due > now then
  to_schedule(key, task)
  call('HSET', TASKS, key, pack_task(task))
else
  permit_when_full()
  call('ZREM', SCHEDULE, key)
  if losses_of(task) > 0 then
    --- parts
    to_front(key, task)
  else
    to_stream(key, task)
  end
  local fields = {key, pack_task(task)}
  call('HSET', TASKS, key, fields[2])
  try_direct_delivery(task.location == IN_STREAM and 1 or 0, #fields[2], fields, nil, now, now_us)
end
publish(key, waiting_event(task))
return {1, number(task.due)}
