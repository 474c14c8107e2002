-- Lists the functions whose tasks wait for a worker that knows them.
-- ARGV[2]: msgpack {most functions to list}.
-- Returns: per function: name, since when (server ms), number of waiting tasks, whether a live
--   worker knows it (0/1).
-- uses: keys, unknown_functions
local most = unpack(cmsgpack.unpack(ARGV[2]))
local answer = {}
local found = call('HGETALL', UNKNOWN_SINCE)
for i = 1, math.min(#found, most * 2), 2 do
  local name = found[i]
  local known = is_known_elsewhere(name, '') and 1 or 0
  answer[#answer + 1] = {name, number_in(found[i + 1], 0), call('ZCARD', UNKNOWN_TASKS .. segment(name)), known}
end
return answer
