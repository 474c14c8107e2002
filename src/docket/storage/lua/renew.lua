-- Extends a worker's lease and its place in the roster, and shows it the orders that wait for it.
-- KEYS: all. ARGV[2]: msgpack {worker id, lease ms, how many orders it has carried out since}.
-- Returns: 1 renewed, 2 registered anew (the server had forgotten it), 0 lost; server ms; whether its tasks are on the roster;
--   then the orders: "epoch key".
--- include keys
local worker, lease, done = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
insist()
if call('ZSCORE', LOST, worker) then return {0, now, 0} end
local known = call('ZADD', LEASES, now + lease, worker) == 0
call('ZADD', WORKERS, now, worker)
call('HSET', LENGTHS, worker, lease)
call('SREM', GRACED, worker)
local answer = {known and 1 or 2, now, call('EXISTS', WORKER_TASKS .. worker)}
local orders = ORDERS .. worker
if done > 0 then call('LTRIM', orders, done, -1) end
for _, order in ipairs(call('LRANGE', orders, 0, 999)) do answer[#answer + 1] = order end
return answer
