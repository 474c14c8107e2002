-- Declares workers dead whose lease has ended and puts their work back.
-- ARGV[2]: msgpack {worker that asks, ms since it last looked or -1 if never, thorough (0/1), execution ttl ms,
--   tail of a lost task, its event, tail of a cancelled task, its event}.
-- Returns: workers declared dead now, deliveries put back, buried, cancelled, dying workers left.
local asking, gap, thorough, ttl, lost_tail, lost_event, cancelled_tail, cancelled_event = unpack(cmsgpack.unpack(ARGV[2]))
local FAILED_STATE, CANCELLED_STATE = 4, 5
local now = server_ms()
local declared, requeued, buried, cancelled = 0, 0, 0, 0
insist()
local lengths = {}
if thorough == 1 then
  local flat = call('HGETALL', LENGTHS)
  for i = 1, #flat, 2 do lengths[flat[i]] = tonumber(flat[i + 1]) end
end

-- Who looks for the first time goes by what others did.
if gap < 0 then
  gap = math.huge
  for worker, length in pairs(lengths) do
    local score = worker ~= asking and call('ZSCORE', LEASES, worker)
    if score then gap = math.min(gap, now - (score - length)) end
  end
end

-- Nobody has looked for a while: the server stalled, its clock jumped, or no worker was there. Owners get the chance to renew
-- first, once per renewal (a lease that still ends when the grace does was not renewed), so that a fleet that always looks late
-- still finds its dead.
local function give_grace(worker, length, score)
  if gap <= length / 3 or score >= now + length * 2 / 3 then return false end
  if tonumber(call('HGET', GRACED, worker) or '-1') == score then return false end
  local until_ms = math.floor(now + length * 2 / 3)
  call('ZADD', LEASES, until_ms, worker)
  call('HSET', GRACED, worker, string.format('%.0f', until_ms))
  return true
end

for worker, length in pairs(lengths) do
  local score = tonumber(call('ZSCORE', LEASES, worker) or '0')
  if score > now + length then
    call('ZADD', LEASES, now + length, worker)
  elseif score > 0 then
    give_grace(worker, length, score)
  end
end

local call_came = false
local ended = call('ZRANGEBYSCORE', LEASES, '-inf', now, 'WITHSCORES', 'LIMIT', 0, 10)
for i = 1, #ended, 2 do
  local worker = ended[i]
  local length = worker ~= CALL and tonumber(call('HGET', LENGTHS, worker) or '0')
  if not length then
    call_came = true
  elseif not give_grace(worker, length, tonumber(ended[i + 1])) then
    call('ZADD', LOST, now, worker)
    call('SADD', DYING, worker)
    call('ZREM', LEASES, worker)
    declared = declared + 1
  end
end

-- A consumer without a lease: its last read was answered after it had left.
for _, stream in ipairs((thorough == 1 or call_came) and {STREAM, FRONT} or {}) do
  local consumers = redis.pcall('XINFO', 'CONSUMERS', stream, GROUP)
  if type(consumers) == 'table' and not consumers.err then
    for _, c in ipairs(consumers) do
      if not call('ZSCORE', LEASES, c[2]) then
        call('ZADD', LOST, now, c[2])
        call('SADD', DYING, c[2])
      end
    end
  end
end
if thorough == 1 then call('ZREMRANGEBYSCORE', LOST, '-inf', now - 86400000) end

local function recover(key, stream, id, worker, suspect)
  local bytes = call('HGET', TASKS, key)
  local task = bytes and unpack_task(bytes)
  if not task or not is_at(task, stream, id) then return drop_entries(stream, {id}) end
  local run_bytes = call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  if run and run.worker ~= worker then
    call('XCLAIM', stream, GROUP, run.worker, 0, id, 'JUSTID')
    return
  end
  if not run then
    drop_entries(stream, {id})
  else
    end_run(key, run, false)
    if has_flag(run, CANCEL_ASKED) then
      leave_line(key)
      cancelled = cancelled + 1
      return finish(key, CANCELLED_STATE, run.epoch, run.started, now, bytes, ttl, cancelled_tail, cancelled_event)
    end
    if not suspect or suspect == key then task.losses = task.losses + 1 end
    if losses_of(task) >= LOST_AFTER then
      leave_line(key)
      buried = buried + 1
      local last_seen = pack_task(task)
      keep_dead_letter(key, now, pack_finished(FAILED_STATE, run.epoch, run.started, now, last_seen, '', lost_tail))
      return finish(key, FAILED_STATE, run.epoch, run.started, now, last_seen, ttl, lost_tail, lost_event)
    end
  end
  to_front(key, task)
  call('HSET', TASKS, key, pack_task(task))
  call('HDEL', PROGRESS, key)
  publish(key, waiting_event(task))
  requeued = requeued + 1
end

local budget = 100
for _, worker in ipairs(call('SRANDMEMBER', DYING, 10)) do
  local suspect = call('HGET', SUSPECTS, worker)
  for _, stream in ipairs({STREAM, FRONT}) do
    for _, p in ipairs(budget > 0 and pending_of(worker, stream, budget) or {}) do
      budget = budget - 1
      local entry = call('XRANGE', stream, p[1], p[1])[1]
      if entry and entry[2][1] == 'k' then
        recover(entry[2][2], stream, p[1], worker, suspect)
      else
        drop_entries(stream, {p[1]})
      end
      -- end_run() forgets the suspect as soon as it is met; its neighbours in later batches need it still.
      if suspect then call('HSET', SUSPECTS, worker, suspect) end
    end
  end
  if budget <= 0 then break end
  lay_ghosts(worker)
  strike_off(worker)
  delete_consumer(worker)
  call('SREM', DYING, worker)
end
local dying = call('SCARD', DYING)
if call_came then call('ZREM', LEASES, CALL) end
if dying > 0 then
  call_for_reclaiming(0)
elseif declared > 0 then
  call_for_second_look(now)
end
return {declared, requeued, buried, cancelled, dying}
