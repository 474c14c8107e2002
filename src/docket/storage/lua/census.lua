-- Counts everything that a live view shows, in one step: tasks by location, workers, and the
-- endings of the last minutes. Its cost does not grow with the number of tasks.
-- ARGV[2]: msgpack {the minute that the caller has
--   read last, or -1; with the slots of limits (0/1)}.
-- Returns: server ms, unfinished, running, the counts of the locations (`COUNTED`), dead letters,
--   letters that did not fit, limits in use, id of the oldest ready entry or false, workers,
--   workers that are stopping, slots of limits in use (0 unless requested); then per minute, from
--   the one that the caller has read last to this one: its number, list of fields and rows.
-- uses: keys, placement, fleet, locations
local last_minute, with_slots = unpack(cmsgpack.unpack(ARGV[2]))
local MOST_MINUTES, MOST_LIMITS = 2, 1000

-- The oldest ready entry is the first one after the last delivered one.
local function oldest_ready(stream)
  local last = last_delivered(stream)
  local entry = last and call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
  return entry and entry[1] or false
end

local slots = 0
for i, limit in ipairs(with_slots == 1 and call('HKEYS', LIMITS) or {}) do
  if i > MOST_LIMITS then break end
  slots = slots + call('SCARD', SLOTS .. limit)
end
local now = server_ms()
local workers = call('EXISTS', LEASES) == 1 and workers_with_lease() or 0
local answer = {now, call('HLEN', TASKS), call('HLEN', RUNNING), count_locations(),
  call('ZCARD', LETTERS) + call('ZCARD', DEAD), number_in(call('HGET', LETTER_COUNTS, 'dropped'), 0), call('HLEN', LIMITS),
  oldest_ready(STREAM) or oldest_ready(FRONT), workers, call('SCARD', STOPPING), slots}
local minute = math.floor(now / MINUTE_MS)
for number = math.max(last_minute < 0 and minute or last_minute, minute - MOST_MINUTES), minute do
  answer[#answer + 1] = number
  answer[#answer + 1] = call('HGETALL', STATS_MINUTE .. string.format('%.0f', number))
end
return answer
