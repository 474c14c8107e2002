-- Lets one submission through when it has been quiet for `settle` ms, and drops the others.
-- ARGV[2]: msgpack {key, epoch, ttl ms, cancelled tail, cancelled event, state, settle ms, latest (0/1), tail and event of
--   a task that was overtaken}.
--   state: hash. leader, due: the task that waits and until when; order: its place among the submissions; last: when the last
--   one arrived; winner: the submission that was let through; again: the task that is to be let through once more.
-- Returns: verdict (0 lost, 1 go, 2 put off, 3 drop), wait ms, the submission that was let through.
local key, epoch, ttl, tail, event, state, settle, latest, overtaken_tail, overtaken_event = unpack(cmsgpack.unpack(ARGV[2]))
-- A state outlives its use by this: after a longer absence of all workers a leader waits once more.
local SPARE_MS = 600000
local now = server_ms()
insist()
local run, task, bytes = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
-- A retry belongs to a run that was let through.
if task.attempt > 1 then return {GO, 0, ''} end
local found = call('HMGET', state, 'leader', 'due', 'order', 'last', 'winner', 'again')
local ours = submission_name(key, task)
local leader, due, leaders_order, last = found[1], tonumber(found[2]), tonumber(found[3]), tonumber(found[4])
if found[5] == ours then return {GO, 0, ours} end

local function let_through()
  call('HSET', state, 'winner', ours)
  call('PEXPIRE', state, math.max(call('PTTL', state), SPARE_MS))
  return {GO, 0, ours}
end

if found[6] == string.format('%.0f ', task.generation) .. key then
  call('HDEL', state, 'again')
  return let_through()
end

local function wait_until(at)
  call('HSET', state, 'leader', key, 'due', at)
  call('PEXPIRE', state, at - now + SPARE_MS)
  put_off(key, run, task, bytes, at, ttl, tail, event)
  return {PUT_OFF, at - now, ''}
end

-- A leader that is back from its wait; a task of its key that was scheduled anew is a new submission.
if leader == key and due == task.due then
  if last + settle > now then return wait_until(last + settle) end
  call('HDEL', state, 'leader', 'due', 'order', 'last')
  return let_through()
end

-- When it was submitted, as the server saw it. One that was put back has a new entry; its due time is older.
local function our_order()
  local order = run.entry_ms + math.min(run.entry_seq, 4095) / 4096
  return has_flag(run, FROM_FRONT) and math.min(order, task.due) or order
end

local function waits(other)
  local record = other and other ~= key and call('HGET', TASKS, other)
  local found_task = record and unpack_task(record)
  return found_task and found_task.due == due and found_task, record
end

local order = our_order()
local other, other_bytes = waits(leader)
if other then
  call('HSET', state, 'last', now)
  local overtakes
  if latest == 1 then overtakes = order > leaders_order else overtakes = order < leaders_order end
  if not overtakes then
    call('PEXPIRE', state, math.max(due - now, 0) + settle + SPARE_MS)
    return {DROP, 0, ''}
  end
  withdraw(leader, other)
  finish(leader, 5, 0, 0, now, other_bytes, ttl, overtaken_tail, overtaken_event)
end
call('HSET', state, 'order', string.format('%.4f', order), 'last', now)
return wait_until(now + settle)
