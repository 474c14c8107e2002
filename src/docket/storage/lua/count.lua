-- Counts tasks by location, dead letters, and limits.
-- No arguments.
-- Returns: server ms, unfinished, running, scheduled, parked, dead letters, limits in use, limit
--   slots in use, id of the oldest ready entry or false, tasks that wait for a worker that knows
--   their function, tasks that a pause holds, dead letters that number or bytes have pushed out.
-- uses: keys, placement
local slots = 0
for i, limit in ipairs(call('HKEYS', LIMITS)) do
  if i > 1000 then break end
  slots = slots + call('SCARD', SLOTS .. limit)
end

-- The oldest waiting entry is the first one after the last delivered one.
local function oldest_waiting()
  local last = last_delivered(STREAM)
  local next_entry = last and call('XRANGE', STREAM, '(' .. last, '+', 'COUNT', 1)[1]
  return next_entry and next_entry[1] or false
end

local unknown = 0
for i, name in ipairs(call('HKEYS', UNKNOWN_SINCE)) do
  if i > 1000 then break end
  unknown = unknown + call('ZCARD', UNKNOWN_TASKS .. segment(name))
end
local now = server_ms()
return {now, call('HLEN', TASKS), call('HLEN', RUNNING), call('ZCARD', SCHEDULE), call('HLEN', PARKED), call('ZCARD', LETTERS) + call('ZCARD', DEAD),
  call('HLEN', LIMITS), slots, oldest_waiting(), unknown, call('HLEN', HELD_BY), number_in(call('HGET', LETTER_COUNTS, 'dropped'), 0)}
