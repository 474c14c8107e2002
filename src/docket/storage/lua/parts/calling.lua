-- Whoever renews after this time looks for lost workers.
local function call_for_reclaiming(at)
  call('ZADD', LEASES, math.min(tonumber(call('ZSCORE', LEASES, CALL) or at), at), CALL)
end

-- Two marks lie among the leases (parts/fleet.lua).
local MARKS = 2

local function workers_with_lease()
  return call('ZCARD', LEASES) - MARKS - (call('ZSCORE', LEASES, CALL) and 1 or 0)
end
