-- Begins to resume a pause: lets the first held tasks go. Workers let the others go (release).
-- ARGV[2]: msgpack {id of the rule, most tasks to move}.
-- Returns: 1, or 0 if there is no such pause; number of tasks that it held.
-- uses: keys, holds
local id, most = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local known = call('HGET', PAUSES, id)
if not known then return {0, 0} end
local held = call('ZCARD', HELD_TASKS .. segment(id))
if string.sub(known, 1, 1) == PAUSED then
  call('HSET', PAUSES, id, RESUMING .. string.sub(known, 2))
  call('HSET', PAUSES, ROUND, rounds_so_far() + 1)
  release_some(id, most)
  if not forget_if_released(id) then rules_changed() end
end
return {1, held}
