-- Lets the next held tasks of a pause go that is being resumed, unless workers have not received
-- the last ones yet. Forgets the pause with its last task.
-- ARGV[2]: msgpack {id of the rule, most tasks to move}.
-- Returns: number of moved tasks, number of tasks that are still held (-1: the pause is not being
--   resumed), whether the front stream has undelivered entries (0/1), whether the stream has (0/1).
-- uses: keys, placement, holds
local id, most = unpack(cmsgpack.unpack(ARGV[2]))
local known = call('HGET', PAUSES, id)
if not known or string.sub(known, 1, 1) ~= RESUMING then return {0, -1, 0, 0} end
local front, stream = has_undelivered(FRONT), has_undelivered(STREAM)
local moved, left = 0, call('ZCARD', HELD_TASKS .. segment(id))
if not front then
  permit_when_full()
  moved, left = release_some(id, most)
  if left == 0 then forget_if_released(id) end
end
return {moved, left, (front or moved > 0) and 1 or 0, stream and 1 or 0}
