-- Counts tasks by location, dead letters, and limits.
-- No arguments.
-- Returns: server ms, unfinished, running, scheduled, parked, dead letters, limits in use, limit
--   slots in use, id of the oldest ready entry or false, tasks that wait for a worker that knows
--   their function.
-- uses: keys
local slots = 0
for i, limit in ipairs(call('HKEYS', LIMITS)) do
  if i > 1000 then break end
  slots = slots + call('SCARD', SLOTS .. limit)
end

-- The oldest waiting entry is the first one after the last delivered one.
local function oldest_waiting()
  local groups = redis.pcall('XINFO', 'GROUPS', STREAM)
  if type(groups) ~= 'table' or groups.err then return false end
  for _, g in ipairs(groups) do
    local fields = {}
    for i = 1, #g, 2 do fields[g[i]] = g[i + 1] end
    if fields['name'] == GROUP then
      local next_entry = call('XRANGE', STREAM, '(' .. fields['last-delivered-id'], '+', 'COUNT', 1)[1]
      return next_entry and next_entry[1] or false
    end
  end
  return false
end

local unknown = 0
for i, name in ipairs(call('HKEYS', UNKNOWN_SINCE)) do
  if i > 1000 then break end
  unknown = unknown + call('ZCARD', UNKNOWN_TASKS .. segment(name))
end
local now = server_ms()
return {now, call('HLEN', TASKS), call('HLEN', RUNNING), call('ZCARD', SCHEDULE), call('HLEN', PARKED), call('ZCARD', DEAD),
  call('HLEN', LIMITS), slots, oldest_waiting(), unknown}
