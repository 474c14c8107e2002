-- Extends a worker's lease. The answer says whether the worker should reclaim or stage, and which
-- of its runs to cancel.
-- ARGV[2]: msgpack {worker id, lease ms, has runs (0/1), ms for which its offer of a slot stays
--   valid (0: no offer), ms without any renewal that count as a gap, is stopping (0/1), its report
--   or false (docs/design/web.md)}.
-- Returns: 1 renewed, 2 not registered (the server lost its data: register again), 0 lost; server
--   ms; whether this worker should reclaim; whether it should stage; then the cancel requests:
--   "epoch key".
-- uses: keys, records, fleet
local worker, lease, has_runs, offer_ms, late_ms, stopping, report = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
-- The two marks, then the leases that end first; this worker's may be one of them.
local head = call('ZRANGE', LEASES, 0, 3, 'WITHSCORES')
local extend = {'ZADD', LEASES, 'XX', 'CH', now + lease, worker, now + RENEWED_AT, RENEWED}
local changed = redis.pcall(unpack(extend))
if type(changed) == 'table' then
  permit_when_full()
  changed = call(unpack(extend))
end
if changed < 2 and not call('ZSCORE', LEASES, worker) then
  -- This is not a renewal: it must not hide from the others that nobody could renew before.
  if head[1] == RENEWED then call('ZADD', LEASES, head[2], RENEWED) end
  return {call('ZSCORE', LOST, worker) and 0 or 2, now, 0, 0}
end
if head[1] ~= RENEWED or head[3] ~= GRACE then
  --- parts
  open_fleet(now)
  head = call('ZRANGE', LEASES, 0, 3, 'WITHSCORES')
end
local last, grace_until = head[2] - RENEWED_AT, head[4] - GRACE_AT
if now - last > late_ms or last > now then
  --- parts
  permit_when_full()
  grace_until = note_gap(now, last, grace_until, lease)
end
local answer = {1, now, 0, 0}

-- The first worker that renews reclaims. If it has not finished after a second, another worker
-- reclaims, too.
local soonest = head[5] == worker and head[8] or head[6]
if soonest and tonumber(soonest) <= now and not is_grace(now, grace_until) then
  local taken_until = number_in(call('HGET', FLEET, 'reclaiming'), 0)
  if taken_until < now or taken_until > now + 1000 then
    permit_when_full()
    call('HSET', FLEET, 'reclaiming', string.format('%.0f', now + 1000))
    answer[3] = 1
  end
end

-- Leader and deputy are both stalled or gone.
local first = call('ZRANGE', SCHEDULE, 0, 0, 'WITHSCORES')[2]
if first and tonumber(first) < now - 1000 then
  local staged = number_in(call('HGET', FLEET, 'staged'), 0)
  if staged < now - 1000 or staged > now then
    permit_when_full()
    call('HSET', FLEET, 'staged', string.format('%.0f', now))
    answer[4] = 1
  end
end

if stopping == 1 then call('SADD', STOPPING, worker) end
if report then call('HSET', WORKER_REPORTS, worker, report) end
if offer_ms > 0 then call('ZADD', OFFERS, 'XX', now + offer_ms, worker) end

-- A cancel request stays until its run is over, so that a worker that missed an answer, or was too
-- busy to read it, gets the request again.
local requests = CANCEL_REQUESTS .. worker
for _, request in ipairs(has_runs == 1 and call('LRANGE', requests, 0, 999) or {}) do
  local epoch, key = string.match(request, '^(%d+) (.*)$')
  local run_bytes = key and call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  if run and string.format('%.0f', run.epoch) == epoch then
    answer[#answer + 1] = request
  else
    call('LREM', requests, 1, request)
  end
end
return answer
