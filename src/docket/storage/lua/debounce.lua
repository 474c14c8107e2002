-- Admits one submission once no other has arrived for `settle` ms, and drops the others.
-- ARGV[2]: msgpack {key, epoch, ttl ms, what the run took from other limits, state, settle ms,
--   latest (0/1)}.
--   state: key of a hash. leader, due: the leading submission and the end of its wait;
--   order: its rank among the submissions; last: when the last one arrived;
--   winner: the admitted submission; `again <submission>`: admit it once more;
--   `overtaken <submission>`: drop it when its next run asks.
-- Returns: verdict (0 lost, 1 admit, 2 delay, 3 drop), wait ms, the admitted submission; for a
--   dropped one '' or 'overtaken'.
-- uses: keys, records, placement, admission
local key, epoch, ttl, taken, state, settle, latest = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
permit_when_full()
local run, task, bytes = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
-- A retry belongs to a run that was admitted, and so does a run after an admitted run that was
-- lost.
if task.attempt > 1 or was_admitted(task) then return {ADMIT, 0, ''} end
local ours = submission_name(key, task)
local found = call('HMGET', state, 'leader', 'due', 'order', 'last', 'winner', 'again ' .. ours, 'overtaken ' .. ours)
local leading, due, leading_rank, last = found[1], number_in(found[2], now), number_in(found[3], 0), number_in(found[4], 0)
if found[5] == ours then
  admit(key, run)
  return {ADMIT, 0, ours}
end
-- How long a perpetual task pauses after a drop. If it came back sooner, it would make the others
-- wait, or the two would overtake each other in turn.
local pause_ms = settle * 2
if found[7] then return {DROP, pause_ms, 'overtaken'} end

local function admit_ours()
  call('HSET', state, 'winner', ours)
  call('PEXPIRE', state, math.max(call('PTTL', state), DEBOUNCE_SPARE_MS))
  admit(key, run)
  return {ADMIT, 0, ours}
end

if found[6] then return admit_ours() end

local function wait_until(at)
  call('HSET', state, 'leader', ours, 'due', at)
  call('PEXPIRE', state, at - now + DEBOUNCE_SPARE_MS)
  delay_run(key, run, task, bytes, at, ttl, taken)
  note_delay(ttl, key, 'debounce', at, 1, settle, state)
  note_window(now, state, 1, settle, at)
  return {DELAY, at - now, ''}
end

-- The wait of the leading submission is over.
if leading == ours then
  if last + settle > now then return wait_until(last + settle) end
  call('HDEL', state, 'leader', 'due', 'order', 'last')
  return admit_ours()
end

-- The time of the submission on the server's clock. A task from the front stream has a new entry,
-- but its due time is older.
local function our_rank()
  local rank = run.entry_ms + math.min(run.entry_seq, 4095) / 4096
  return has_flag(run, FROM_FRONT) and math.min(rank, task.due) or rank
end

-- The next run of the overtaken submission finds the mark, and ends or skips as its behaviours
-- decide. A submission that runs or is ready needs no move.
local function overtake()
  mark_submission(state, 'overtaken', leading)
  local other = string.match(leading, '^%d+ %d+ (.*)$')
  local other_task = unpack_task(call('HGET', TASKS, other))
  if other_task.location == SCHEDULED then
    call('ZREM', SCHEDULE, other)
    to_front(other, other_task)
    call('HSET', TASKS, other, pack_task(other_task))
    publish(other, waiting_event(other_task))
  end
end

local rank = our_rank()
if leading and is_current(leading) then
  call('HSET', state, 'last', now)
  local overtakes
  if latest == 1 then overtakes = rank > leading_rank else overtakes = rank < leading_rank end
  if not overtakes then
    call('PEXPIRE', state, math.max(due - now, 0) + settle + DEBOUNCE_SPARE_MS)
    return {DROP, pause_ms, ''}
  end
  overtake()
end
call('HSET', state, 'order', string.format('%.4f', rank), 'last', now)
return wait_until(now + settle)
