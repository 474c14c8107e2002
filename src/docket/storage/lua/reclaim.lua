-- Declares workers dead whose leases have ended, and puts their tasks back. One call does a bounded
-- part of the work: the caller repeats it until nothing is left.
-- ARGV[2]: msgpack {worker that asks, its lease ms, ms without any renewal that count as a gap,
--   whether the worker may take a duty (0/1), list of consumers that seem to have no lease,
--   execution ttl ms, number of losses that bury a task, {tail of a buried task, its event} for
--   loss counts of one, two and three digits (a # per digit), how to keep a buried task}.
-- Returns: workers declared dead, deliveries put back, buried, cancelled, number of workers left to
--   declare and recover, whether the caller should search for consumers without a lease, duty of
--   the worker that asks (1 leader, 2 deputy, 0 none).
-- uses: keys, records, entries, letters, fleet, foreign, suspects, placement, limit_slots, removal, endings, workers, statistics
local asking, lease, late_ms, is_willing, consumers, ttl, max_losses, lost_endings, letter = unpack(cmsgpack.unpack(ARGV[2]))
local MOST_DECLARED = 5
local now = real_ms()
local declared, put_back, buried, cancelled = 0, 0, 0, 0
permit_when_full()

local function declare(worker)
  call('ZADD', LOST, now, worker)
  call('SADD', DYING, worker)
  call('ZREM', LEASES, worker)
  give_up_duty(worker)
end

-- The server may have stalled between the renewal that asked for this reclaim and now.
local first_two = call('ZRANGE', LEASES, 0, 1, 'WITHSCORES')
local grace_until = 0
if first_two[1] == RENEWED and first_two[3] == GRACE then
  local last = first_two[2] - RENEWED_AT
  grace_until = first_two[4] - GRACE_AT
  if now - last > late_ms or last > now then grace_until = note_gap(now, last, grace_until, lease) end
end

local was_due = tonumber(call('ZSCORE', LEASES, RECLAIM_DUE) or 'inf') <= now
if was_due then call('ZREM', LEASES, RECLAIM_DUE) end
local more = 0
if not is_grace(now, grace_until) then
  local ended = call('ZRANGEBYSCORE', LEASES, AFTER_MARKS, now, 'LIMIT', 0, MOST_DECLARED + 1)
  for i = 1, math.min(#ended, MOST_DECLARED) do declare(ended[i]) end
  declared = math.min(#ended, MOST_DECLARED)
  if declared > 0 then note_gone(now) end
  more = #ended > MOST_DECLARED and 1 or 0
end

-- A consumer without a lease: the server answered its last read after the worker had left.
for _, consumer in ipairs(consumers) do
  if not call('ZSCORE', LEASES, consumer) then
    call('ZADD', LOST, now, consumer)
    call('SADD', DYING, consumer)
  end
end

-- Fails the task for good. Its texts say how many losses the task has (LOST_COUNT in
-- ledger/endings.py); they contain one # for each digit of that number.
local function bury(key, run, task)
  --- parts
  local losses = string.format('%d', losses_of(task))
  local ending, pattern = lost_endings[#losses], '(losses so far: )#+'
  local tail, event = string.gsub(ending[1], pattern, '%1' .. losses), string.gsub(ending[2], pattern, '%1' .. losses)
  local note = {unpack(letter_for(task.name, letter))}
  note[$LetterFields.text] = string.gsub(note[$LetterFields.text], pattern, '%1' .. losses)
  leave_waiters(key)
  buried = buried + 1
  finish(key, FAILED_STATE, BURIED_KIND, run, now, pack_task(task), ttl, tail, event, note)
end

-- The cost of one step. A delivery costs 1, a suspect 1 more, because its groups are written, too.
local budget = 20
local GONE_WORKER, FUNCTIONS = 3, 15

-- The members that groups of suspects lose and gain in this step.
local left_groups, joined_groups = {}, {}

-- Counts the loss of a run. Returns whether to bury its task.
local function count_loss(key, task, run, had_one_run)
  local losses, worker = math.min(losses_of(task) + 1, BEGUN - 1), run.worker
  task.losses = task.losses - losses_of(task) + losses
  local most = number_in(call('HGET', MAX_LOSSES, task.name), max_losses)
  if losses >= most and (has_flag(run, ALONE) or had_one_run and most <= SUSPECT_AFTER) then return true end
  if losses >= SUSPECT_AFTER then
    budget = budget - 1
    note_life(key, now - run.started)
    local former = call('HGET', SUSPECTS, 't' .. key)
    local group = group_after_loss(worker, former)
    call('HSET', SUSPECTS, 't' .. key, group)
    if former then left_groups[former] = (left_groups[former] or 0) + 1 end
    joined_groups[group] = (joined_groups[group] or 0) + 1
  end
  return false
end

local function recover(key, stream, id, worker, stopping, had_one_run)
  local bytes = call('HGET', TASKS, key)
  local task = bytes and unpack_task(bytes)
  if not task or not is_at(task, stream, id) then return drop_entries(stream, {id}) end
  local run_bytes = call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  if run_bytes and not run then
    call('HDEL', RUNNING, key)
    note_damaged_run()
  end
  if run and run.worker ~= worker then
    call('XCLAIM', stream, GROUP, run.worker, 0, id, 'JUSTID')
    return
  end
  if not run then
    drop_entries(stream, {id})
  else
    end_run(key, run, false)
    remember_admission(task, run)
    if has_flag(run, CANCEL_ASKED) then
      --- parts
      leave_waiters(key)
      cancelled = cancelled + 1
      return finish_cancelled(key, run, now, bytes, ttl)
    end
    if stopping then
      if task.losses < BEGUN then task.losses = task.losses + BEGUN end
    elseif count_loss(key, task, run, had_one_run) then
      return bury(key, run, task)
    end
    do
      --- parts
      count_ending(key, bytes, LOST_KIND, now, run, ttl, false, 0)
    end
  end
  to_front(key, task)
  call('HSET', TASKS, key, pack_task(task))
  call('HDEL', PROGRESS, key)
  publish(key, waiting_event(task))
  put_back = put_back + 1
end

local function key_of(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  return entry and entry_key(entry[2])
end

-- Whether the worker died with exactly one run. This matters only if one or two losses bury a task.
-- Unclaimed deliveries do not count. With very many deliveries the answer is false.
local few_losses_bury = max_losses <= SUSPECT_AFTER or call('EXISTS', MAX_LOSSES) == 1
local function died_with_one_run(worker)
  local MOST_INSPECTED = 100
  if not few_losses_bury then return false end
  local noted = call('HGET', SUSPECTS, 'x' .. worker)
  if noted then return noted == '1' end
  local found = 0
  for _, stream in ipairs({STREAM, FRONT}) do
    local pending = pending_of(worker, stream, MOST_INSPECTED)
    if #pending == MOST_INSPECTED then return false end
    for _, p in ipairs(pending) do
      local key = key_of(stream, p[1])
      local run_bytes = key and call('HGET', RUNNING, key)
      local run = run_bytes and unpack_run(run_bytes)
      if run and run.worker == worker then found = found + 1 end
      if found > 1 then return false end
    end
  end
  return found == 1
end

local gone = {}
for _, worker in ipairs(call('SRANDMEMBER', DYING, 10)) do
  local stopping = call('SISMEMBER', STOPPING, worker) == 1
  local had_one_run = not stopping and died_with_one_run(worker)
  for _, stream in ipairs({STREAM, FRONT}) do
    for _, p in ipairs(budget > 0 and pending_of(worker, stream, budget) or {}) do
      if budget <= 0 then break end
      budget = budget - 1
      local key = key_of(stream, p[1])
      if key then
        recover(key, stream, p[1], worker, stopping, had_one_run)
      else
        keep_foreign(stream, p[1])
        drop_entries(stream, {p[1]})
      end
    end
  end
  if budget <= 0 then
    -- The later steps use this answer: otherwise the last of many runs would look like the only
    -- one.
    if few_losses_bury then call('HSET', SUSPECTS, 'x' .. worker, had_one_run and '1' or '0') end
    break
  end
  -- A worker may know so many functions that the next step has to continue.
  budget = budget - GONE_WORKER
  local most = math.max(budget, 1) * FUNCTIONS
  local forgotten = forget_functions(worker, most)
  budget = budget - math.floor(forgotten / FUNCTIONS)
  if forgotten == most then break end
  gone[worker] = true
  deregister(worker)
  delete_consumer(worker)
  call('SREM', DYING, worker)
  if budget <= 0 then break end
end
for group, count in pairs(left_groups) do change_group(group, 0, count) end
for group, count in pairs(joined_groups) do change_group(group, count, 0) end
release_replaced_runs(gone)

local duty = NO_DUTY
if is_willing == 1 and call('ZSCORE', LEASES, asking) then duty = take_duty(asking) end
local left = call('SCARD', DYING) + more
if left > 0 then
  schedule_reclaim(0)
  call('HSET', FLEET, 'reclaiming', string.format('%.0f', now + 1000))
else
  call('HDEL', FLEET, 'reclaiming')
  call('ZREM', LEASES, RECLAIM_DUE)
  schedule_second_reclaim(now)
  -- This worker has its duty by now, or does not want one. If a duty is still vacant, announce it
  -- to the others.
  announce_vacancy(is_willing == 1 and now + 2000 or 0)
  if is_willing ~= 1 then
    --- parts
    tell_of_vacancy(asking)
  end
end
return {declared, put_back, buried, cancelled, left, was_due and 1 or 0, duty}
