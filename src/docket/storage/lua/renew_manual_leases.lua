-- Renews the leases of manual runs (claimed by key, without a worker).
-- ARGV[2]: msgpack {lease ms, list of lease ids}.
-- Returns: server ms.
-- uses: keys
local lease, ids = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
permit_when_full()
for _, id in ipairs(ids) do call('ZADD', MANUAL_LEASES, now + lease, id) end
return now
