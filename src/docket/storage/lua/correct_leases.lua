-- Corrects a page of leases: after the clock was set back, they end too far in the future, and no
-- other script would correct them. If tasks of dead workers are left, and nobody was told, the next
-- renewal asks a worker to reclaim.
-- ARGV[2]: msgpack {cursor, number of leases to read}.
-- Returns: next cursor ('0' at the end).
-- uses: keys, workers
local LOST_FOR_MS = 86400000
local cursor, count = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
permit_when_full()
local page = call('HSCAN', LEASE_LENGTHS, cursor, 'COUNT', count)
for i = 1, #page[2], 2 do
  local worker, length = page[2][i], number_in(page[2][i + 1])
  local ends = tonumber(call('ZSCORE', LEASES, worker) or '0')
  if length and ends > now + length then call('ZADD', LEASES, now + length, worker) end
end
local reclaim_at = tonumber(call('ZSCORE', LEASES, RECLAIM_DUE) or '0')
if reclaim_at > now + LATE_READ_MS or reclaim_at == 0 and call('EXISTS', DYING) == 1 then call('ZADD', LEASES, now, RECLAIM_DUE) end
local old = call('ZRANGEBYSCORE', LOST, '-inf', now - LOST_FOR_MS, 'LIMIT', 0, count)
if #old > 0 then call('ZREM', LOST, unpack(old)) end
return page[1]
