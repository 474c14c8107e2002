-- The state of the fleet: its leases, the time of the last renewal, the grace in which no worker is
-- declared dead, and the leader.
-- uses: keys, proofs

-- The first worker that renews after this time reclaims.
local function schedule_reclaim(at)
  call('ZADD', LEASES, math.min(tonumber(call('ZSCORE', LEASES, RECLAIM_DUE) or at), at), RECLAIM_DUE)
end

-- RENEWED and GRACE are members of the leases, too.
local MARKS = 2

local function workers_with_lease()
  return call('ZCARD', LEASES) - MARKS - (call('ZSCORE', LEASES, RECLAIM_DUE) and 1 or 0)
end

-- RENEWED and GRACE are not workers. Their scores are times far below any lease, so they are always
-- the first two members.
local RENEWED, RENEWED_AT = '\1renewed', -2e15
local GRACE, GRACE_AT = '\1grace', -1e15
local AFTER_MARKS = '-1e14'
-- Every worker renews at least every five seconds.
local LONGEST_GRACE_MS = 10000
local MOST_GAPS = 3

local LEADER, DEPUTY, NO_DUTY = 1, 2, 0

local function open_fleet(now)
  call('ZADD', LEASES, 'NX', now + RENEWED_AT, RENEWED, GRACE_AT, GRACE)
end

-- No worker has renewed for a while: the server stalled, its clock jumped, or no worker could reach
-- it. Every live worker gets the chance to renew before any is declared dead. Consecutive gaps
-- extend the grace, for three leases at most: even if a worker always renews late, dead
-- workers are found in the end.
local function note_gap(now, last, grace_until, lease)
  local known = call('HMGET', FLEET, 'longest', 'gaps-since')
  local longest, since = math.max(number_in(known[1], 0), lease), number_in(known[2], 0)
  if last > grace_until or last > now or since > now then since = now end
  if now - since >= MOST_GAPS * longest then return grace_until end
  grace_until = math.floor(now + math.min(longest, LONGEST_GRACE_MS))
  call('ZADD', LEASES, grace_until + GRACE_AT, GRACE)
  call('HSET', FLEET, 'gaps-since', string.format('%.0f', since))
  return grace_until
end

-- If the grace would last longer than the longest grace, the clock was set back since: ignore it.
local function is_grace(now, grace_until)
  return now < grace_until and grace_until <= now + LONGEST_GRACE_MS
end

-- Who leads, and its deputy. A duty of a worker without a lease is vacant: somebody has written
-- there.
local function duty_holders()
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  for i = 1, 2 do
    if held[i] and not call('ZSCORE', LEASES, held[i]) then held[i] = false end
  end
  return held
end

-- The duty of a worker. The worker takes a vacant one.
local function take_duty(worker)
  local held = duty_holders()
  if held[1] == worker then return LEADER end
  if not held[1] then
    call('HSET', FLEET, 'leader', worker)
    if held[2] == worker then call('HDEL', FLEET, 'deputy') end
    return LEADER
  end
  if not held[2] then call('HSET', FLEET, 'deputy', worker) end
  return (not held[2] or held[2] == worker) and DEPUTY or NO_DUTY
end

-- If a duty is vacant and a worker without a duty exists, the first worker that renews after this
-- time reclaims, and takes the duty.
local function announce_vacancy(at)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  local holders = (held[1] and 1 or 0) + (held[2] and 1 or 0)
  if holders < 2 and workers_with_lease() > holders then schedule_reclaim(at) end
end

-- Tells a few workers without a duty that one is vacant: they renew now, and the first one reclaims
-- and takes it. A node of a cluster does not know who listens at other nodes, so the number of
-- messages has a bound of its own.
local MOST_TOLD, MOST_MESSAGES, MOST_LOOKED_AT = 3, 10, 100
local function tell_of_vacancy(leaving)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  if held[1] and held[2] then return end
  local told, sent = 0, 0
  local busy = {[leaving] = true, [held[1] or ''] = true, [held[2] or ''] = true, [RECLAIM_DUE] = true, [RENEWED] = true, [GRACE] = true}
  for _, worker in ipairs(call('ZREVRANGE', LEASES, 0, MOST_LOOKED_AT - 1)) do
    if told == MOST_TOLD or sent == MOST_MESSAGES then return end
    if not busy[worker] and call('SISMEMBER', STOPPING, worker) == 0 then
      sent = sent + 1
      if call('PUBLISH', CHANNELS .. 'worker/' .. worker, 'D' .. proof('duty', worker, '')) > 0 then told = told + 1 end
    end
  end
end

-- Takes the duty from a worker that stops or is dead. Its deputy leads at once, and a worker that
-- renews takes the vacant duty. Returns whether the worker had a duty.
local function give_up_duty(worker)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  if held[1] ~= worker and held[2] ~= worker then return false end
  if held[1] ~= worker or held[2] then call('HDEL', FLEET, 'deputy') end
  if held[1] == worker then
    if held[2] then call('HSET', FLEET, 'leader', held[2]) else call('HDEL', FLEET, 'leader') end
  end
  call('PUBLISH', CHANNELS .. 'wake/', '0')
  announce_vacancy(0)
  do
    --- parts
    tell_of_vacancy(worker)
  end
  return true
end

-- The duty of a worker that wants to stage. If a task is overdue, the leader is stalled or gone:
-- its deputy takes over, or a worker that a renewal asked to stage (`is_asked`). A leader that
-- works through a backlog is not stalled.
local function lead_staging(worker, is_asked, is_overdue)
  local held = call('HMGET', FLEET, 'leader', 'deputy', 'staged')
  if held[1] == worker then return LEADER end
  local is_deputy = held[2] == worker
  local takes_over = not held[1] or (is_overdue and is_asked)
  if not takes_over and is_overdue and is_deputy then
    local idle = real_ms() - number_in(held[3], 0)
    takes_over = idle < 0 or idle >= 500
  end
  if not takes_over or not call('ZSCORE', LEASES, worker) then return is_deputy and DEPUTY or NO_DUTY end
  permit_when_full()
  call('HSET', FLEET, 'leader', worker)
  if is_deputy then call('HDEL', FLEET, 'deputy') end
  if held[1] and (is_deputy or not held[2]) then call('HSET', FLEET, 'deputy', held[1]) end
  return LEADER
end
