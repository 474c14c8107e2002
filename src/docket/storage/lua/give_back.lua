-- Gives back what a run took and did not use, since something else kept it from beginning.
-- ARGV[2]: msgpack {key of a sorted set or a string, member or value}.
-- Returns: nothing of interest.
local place, receipt = unpack(cmsgpack.unpack(ARGV[2]))
insist()
if call('TYPE', place).ok == 'zset' then
  call('ZREM', place, receipt)
elseif call('GET', place) == receipt then
  call('DEL', place)
end
return 1
