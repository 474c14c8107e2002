-- The state of the fleet: its leases, the time of the last renewal, the grace period in which no
-- worker is declared dead, and the leader.
-- uses: keys

-- Whoever renews after this time looks for lost workers.
local function schedule_reclaim(at)
  call('ZADD', LEASES, math.min(tonumber(call('ZSCORE', LEASES, RECLAIM_DUE) or at), at), RECLAIM_DUE)
end

-- The two marks below lie among the leases.
local MARKS = 2

local function workers_with_lease()
  return call('ZCARD', LEASES) - MARKS - (call('ZSCORE', LEASES, RECLAIM_DUE) and 1 or 0)
end

-- Both lie before all leases: they are no workers, and their scores are times far below any.
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

-- Nobody has renewed for a while: the server stalled, its clock jumped, or no
-- worker could reach it. Every live owner gets the chance to renew before anybody
-- is declared dead. Gaps that follow each other extend the time, for three leases
-- at most: a worker that always renews late finds its dead in the end.
local function note_gap(now, last, grace_until, lease)
  local known = call('HMGET', FLEET, 'longest', 'gaps-since')
  local longest, since = math.max(tonumber(known[1] or '0'), lease), tonumber(known[2] or '0')
  if last > grace_until or last > now or since > now then since = now end
  if now - since >= MOST_GAPS * longest then return grace_until end
  grace_until = math.floor(now + math.min(longest * 2 / 3, LONGEST_GRACE_MS))
  call('ZADD', LEASES, grace_until + GRACE_AT, GRACE)
  call('HSET', FLEET, 'gaps-since', string.format('%.0f', since))
  return grace_until
end

-- A time further ahead than any grace is of a clock that was set back since.
local function is_grace(now, grace_until)
  return now < grace_until and grace_until <= now + LONGEST_GRACE_MS
end

-- The duty of a worker; a vacant one becomes its own.
local function take_duty(worker)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  if held[1] == worker then return LEADER end
  if not held[1] then
    call('HSET', FLEET, 'leader', worker)
    if held[2] == worker then call('HDEL', FLEET, 'deputy') end
    return LEADER
  end
  if not held[2] then call('HSET', FLEET, 'deputy', worker) end
  return (not held[2] or held[2] == worker) and DEPUTY or NO_DUTY
end

-- A duty that is vacant is for whoever renews after
-- this time, where there is a worker without a duty.
local function announce_vacancy(at)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  local holders = (held[1] and 1 or 0) + (held[2] and 1 or 0)
  if holders < 2 and workers_with_lease() > holders then schedule_reclaim(at) end
end

-- A worker that is gone, or stops, has no duty: its deputy
-- leads at once, and whoever renews next takes what is vacant.
local function give_up_duty(worker)
  local held = call('HMGET', FLEET, 'leader', 'deputy')
  if held[1] ~= worker and held[2] ~= worker then return end
  if held[1] ~= worker or held[2] then call('HDEL', FLEET, 'deputy') end
  if held[1] == worker then
    if held[2] then call('HSET', FLEET, 'leader', held[2]) else call('HDEL', FLEET, 'leader') end
  end
  call('PUBLISH', CHANNELS .. 'wake/', '0')
  announce_vacancy(0)
end

-- The duty of a worker that wants to stage. Where a task is overdue the leader is held up or gone:
-- its deputy leads from now on, or a worker that was asked to (`summoned`). A leader that works off
-- a backlog is not held up.
local function lead_staging(worker, summoned, is_overdue)
  local held = call('HMGET', FLEET, 'leader', 'deputy', 'staged')
  if held[1] == worker then return LEADER end
  local is_deputy = held[2] == worker
  local takes_over = not held[1] or (is_overdue and summoned)
  if not takes_over and is_overdue and is_deputy then
    local idle = real_ms() - tonumber(held[3] or '0')
    takes_over = idle < 0 or idle >= 500
  end
  if not takes_over or not call('ZSCORE', LEASES, worker) then return is_deputy and DEPUTY or NO_DUTY end
  permit_when_full()
  call('HSET', FLEET, 'leader', worker)
  if is_deputy then call('HDEL', FLEET, 'deputy') end
  if held[1] and (is_deputy or not held[2]) then call('HSET', FLEET, 'deputy', held[1]) end
  return LEADER
end
