-- Whoever renews after this time looks for lost workers.
local function call_for_reclaiming(at)
  call('ZADD', LEASES, math.min(tonumber(call('ZSCORE', LEASES, CALL) or at), at), CALL)
end
