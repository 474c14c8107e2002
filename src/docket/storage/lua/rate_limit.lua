-- Admits a run if fewer than `most` runs have begun within the last `per` ms; else reserves a start
-- time in the future for its task, and delays it.
-- ARGV[2]: msgpack {key, epoch, ttl ms, what the run took from other limits, log, waiters, most,
--   per ms, drop (0/1)}.
--   log: key of a sorted set: submission → when its run began.
--   waiters: key of a sorted set: task key → its reserved start time.
-- Returns: verdict (0 lost, 1 admit, 2 delay, 3 drop), wait ms, the submission that the log counts.
-- uses: keys, records, admission
local key, epoch, ttl, taken, log, line, most, per, drop = unpack(cmsgpack.unpack(ARGV[2]))
local PRUNED_AT_ONCE, SPARE_MS = 500, 60000
local now = server_ms()
permit_when_full()
local run, task, bytes = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
local ours = submission_name(key, task)

call('ZREMRANGEBYSCORE', log, '-inf', now - per)
call('ZREMRANGEBYSCORE', line, '-inf', now - per)
-- Beginnings in the future were counted before the server's clock was set back.
for _, other in ipairs(call('ZRANGEBYSCORE', log, '(' .. string.format('%.0f', now), '+inf')) do call('ZADD', log, now, other) end

-- A place in which a body may have begun is not given back.
local function go()
  admit(key, run)
  return {ADMIT, 0, was_admitted(task) and '' or ours}
end

-- Delivered again: its place was counted when it began first.
if call('ZSCORE', log, ours) then return go() end

-- Those before us in the line whose time has come
-- are on their way, unless there is nobody any more.
local function is_full()
  local begun, before = call('ZCARD', log), call('ZRANK', line, key) or call('ZCOUNT', line, '-inf', now)
  if begun + before < most then return false end
  if begun >= most then return true end
  for _, other in ipairs(call('ZRANGEBYSCORE', line, '-inf', now, 'LIMIT', 0, before)) do
    if call('HEXISTS', TASKS, other) == 1 then begun = begun + 1 else call('ZREM', line, other) end
  end
  return begun >= most
end

if not is_full() then
  call('ZREM', line, key)
  call('ZADD', log, now, ours)
  call('PEXPIRE', log, per + SPARE_MS)
  return go()
end

-- Places at the end of the line that nobody will come for (cancelled, cleared) are given out again.
-- False: there may be more.
local function prune_end()
  local listed = call('ZRANGE', line, -PRUNED_AT_ONCE, -1, 'WITHSCORES')
  for i = #listed - 1, 1, -2 do
    local at = tonumber(listed[i + 1])
    if at <= now or tonumber(call('ZSCORE', QUEUE, listed[i]) or -1) == at then return true end
    call('ZREM', line, listed[i])
  end
  return #listed < PRUNED_AT_ONCE * 2
end

-- A window after the one who is `most` places before us.
local function next_start(position)
  local before
  if position >= most then
    before = call('ZRANGE', line, position - most, position - most, 'WITHSCORES')
  else
    local back = most - position - 1
    before = call('ZREVRANGE', log, back, back, 'WITHSCORES')
  end
  return math.max(tonumber(before[2] or now) + per, now + 1)
end

if drop == 1 then return {DROP, next_start(0) - now, ''} end
local rank = call('ZRANK', line, key)
local at
if rank or prune_end() then
  at = next_start(rank or call('ZCARD', line))
  call('ZADD', line, at, key)
  call('PEXPIRE', line, at - now + per + SPARE_MS)
else
  at = now + 1
end
delay_run(key, run, task, bytes, at, ttl, taken)
return {DELAY, at - now, ''}
