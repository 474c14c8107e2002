-- Admits a run if fewer than `most` runs have begun within the last `per` ms; else reserves a start
-- time in the future for its task, and delays it.
-- ARGV[2]: msgpack {key, epoch, ttl ms, what the run took from other limits, log, waiters, most,
--   per ms, drop (0/1)}.
--   log: key of a sorted set: submission → when its run began.
--   waiters: key of a sorted set: task key → its reserved start time.
-- Returns: verdict (0 lost, 1 admit, 2 delay, 3 drop), wait ms, the submission that the log counts.
-- uses: keys, records, admission
local key, epoch, ttl, taken, log, waiters, most, per, drop = unpack(cmsgpack.unpack(ARGV[2]))
local PRUNED_AT_ONCE, SPARE_MS = 500, 60000
local now = server_ms()
permit_when_full()
local run, task, bytes = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
local ours = submission_name(key, task)

call('ZREMRANGEBYSCORE', log, '-inf', now - per)
call('ZREMRANGEBYSCORE', waiters, '-inf', now - per)
-- Runs that began in the future were counted before the server's clock was set back.
for _, other in ipairs(call('ZRANGEBYSCORE', log, '(' .. string.format('%.0f', now), '+inf')) do call('ZADD', log, now, other) end

-- A run whose body may have begun before cannot give its count back.
local function admit_run()
  admit(key, run)
  return {ADMIT, 0, was_admitted(task) and '' or ours}
end

-- A redelivery: its submission was counted when it first began.
if call('ZSCORE', log, ours) then return admit_run() end

-- Earlier waiters whose start time has come count as begun, unless their tasks are gone.
local function is_full()
  local begun, before = call('ZCARD', log), call('ZRANK', waiters, key) or call('ZCOUNT', waiters, '-inf', now)
  if begun + before < most then return false end
  if begun >= most then return true end
  for _, other in ipairs(call('ZRANGEBYSCORE', waiters, '-inf', now, 'LIMIT', 0, before)) do
    if call('HEXISTS', TASKS, other) == 1 then begun = begun + 1 else call('ZREM', waiters, other) end
  end
  return begun >= most
end

if not is_full() then
  call('ZREM', waiters, key)
  call('ZADD', log, now, ours)
  call('PEXPIRE', log, per + SPARE_MS)
  note_window(now, log, most, per, now + per)
  return admit_run()
end

-- Frees the start times of the last waiters whose tasks are gone (cancelled, cleared). False if
-- there may be more of them.
local function prune_end()
  local last_waiters = call('ZRANGE', waiters, -PRUNED_AT_ONCE, -1, 'WITHSCORES')
  for i = #last_waiters - 1, 1, -2 do
    local at = tonumber(last_waiters[i + 1])
    if at <= now or tonumber(call('ZSCORE', SCHEDULE, last_waiters[i]) or -1) == at then return true end
    call('ZREM', waiters, last_waiters[i])
  end
  return #last_waiters < PRUNED_AT_ONCE * 2
end

-- One window after the run or waiter that is `most` positions before this one.
local function next_start(position)
  local before
  if position >= most then
    before = call('ZRANGE', waiters, position - most, position - most, 'WITHSCORES')
  else
    local back = most - position - 1
    before = call('ZREVRANGE', log, back, back, 'WITHSCORES')
  end
  return math.max(tonumber(before[2] or now) + per, now + 1)
end

if drop == 1 then return {DROP, next_start(0) - now, ''} end
local rank = call('ZRANK', waiters, key)
local at
if rank or prune_end() then
  at = next_start(rank or call('ZCARD', waiters))
  call('ZADD', waiters, at, key)
  call('PEXPIRE', waiters, at - now + per + SPARE_MS)
else
  at = now + 1
end
delay_run(key, run, task, bytes, at, ttl, taken)
note_delay(ttl, key, 'rate', at, most, per, log)
note_window(now, log, most, per, at + per)
return {DELAY, at - now, ''}
