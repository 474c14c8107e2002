-- Extends a worker's lease, tells it whether somebody should look for lost workers, and shows it the orders that wait for it.
-- ARGV[2]: msgpack {worker id, lease ms, runs something (0/1), for how many ms an offer of a slot stands (0: there is none)}.
-- Returns: 1 renewed, 2 unknown here (the server came back empty: register), 0 lost; server ms; whether reclaiming is due;
--   then the orders: "epoch key".
local worker, lease, busy, offer_ms = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local extend = {'ZADD', LEASES, 'XX', 'CH', now + lease, worker}
local changed = redis.pcall(unpack(extend))
if type(changed) == 'table' then
  insist()
  changed = call(unpack(extend))
end
if changed == 0 and not call('ZSCORE', LEASES, worker) then
  return {call('ZSCORE', LOST, worker) and 0 or 2, now, 0}
end
local soonest = call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')
local answer = {1, now, tonumber(soonest[2]) <= now and 1 or 0}

if offer_ms > 0 then call('ZADD', OFFERS, 'XX', now + offer_ms, worker) end

-- An order stands until its run is over: whoever missed the answer, or was too busy to read it, sees it again.
local orders = ORDERS .. worker
for _, order in ipairs(busy == 1 and call('LRANGE', orders, 0, 999) or {}) do
  local epoch, key = string.match(order, '^(%d+) (.*)$')
  local run_bytes = call('HGET', RUNNING, key)
  if run_bytes and string.format('%.0f', unpack_run(run_bytes).epoch) == epoch then
    answer[#answer + 1] = order
  else
    call('LREM', orders, 1, order)
  end
end
return answer
