-- Sets the number of slots of a group's limits that are in use, and wakes the tasks that get a
-- slot.
-- ARGV[2]: msgpack {cursor, group, most}.
-- Returns: next cursor ('0' at the end).
-- uses: keys, limit_slots
local cursor, group, most = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HSCAN', LIMITS, cursor, 'COUNT', 200)
for i = 1, #page[2], 2 do
  local limit = page[2][i]
  if limit == group or string.sub(limit, 1, #group + 1) == group .. '~' then
    call('HSET', LIMITS, limit, most)
    wake_waiters(limit)
  end
end
return page[1]
