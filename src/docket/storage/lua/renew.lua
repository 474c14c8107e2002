-- Extends a worker's lease and its place in the roster, and shows it the orders that wait for it.
-- KEYS: all. ARGV[2]: msgpack {worker id, lease ms}.
-- Returns: 1 renewed, 2 registered anew (the server had forgotten it), 0 lost; server ms; whether its tasks are on the roster;
--   then the orders: "epoch key".
--- include keys
--- include records
local worker, lease = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
insist()
if call('ZSCORE', LOST, worker) then return {0, now, 0} end
local known = call('ZADD', LEASES, now + lease, worker) == 0
call('ZADD', WORKERS, now, worker)
call('HSET', LENGTHS, worker, lease)
call('SREM', GRACED, worker)
local answer = {known and 1 or 2, now, call('EXISTS', WORKER_TASKS .. worker)}

-- An order stands until its run is over: whoever missed the answer, or was too busy to read it, sees it again.
local orders = ORDERS .. worker
for _, order in ipairs(call('LRANGE', orders, 0, 999)) do
  local epoch, key = string.match(order, '^(%d+) (.*)$')
  local run_bytes = call('HGET', RUNNING, key)
  if run_bytes and string.format('%.0f', unpack_run(run_bytes).epoch) == epoch then
    answer[#answer + 1] = order
  else
    call('LREM', orders, 1, order)
  end
end
return answer
