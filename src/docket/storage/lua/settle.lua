-- Settles a batch of runs. The epoch and the worker id fence each of them.
-- ARGV[2]: msgpack {ttl ms of a completed or cancelled task, worker that offers a slot or false, ms
--   for which the offer is valid, list of items, worker that claimed these runs, or false for any,
--   the secret of the offer, list with the cell of each item (0: not counted), list with the
--   measures of each item, how long letters are kept in ms, list of completed runs}. An item
--   is {key, epoch, kind, …}; parts/settlements.lua names all fields. Most runs complete, without
--   progress and with a small result, so these come without the fields that they share: key, epoch,
--   tail, cell and measures of the first, of the second, and so on. No two of these have the same
--   key.
-- Kinds:
--   0 finish: state, ttl ms or false for the usual one, tail, event or false (the script writes the
--     event of a completed run), purpose (1 dead letter, 2 ends an automatic chain on purpose, 3
--     both, else 0), whether it has progress, whether its result is a stored payload; a dead letter
--     also has how to keep it (parts/letters.lua)
--   1 reschedule: whether the time is relative, ms, attempt, function name or false, call or false,
--     whether the next run is of the same submission, whether the call is the reference to a
--     payload; for a run that ends, unlike a retried one: state, tail, event, else false; for a
--     retried run: the row of its failed attempt, and the text of its error as JSON
--   2 requeue: delay ms, whether the body has begun
--   3 blocked: what the run took from its limits, and an item of another kind
--   4 unknown function: whether to keep the run unless another live worker knows the function
--   5 hold: the id of the pause that matches
-- Returns: 1 if all runs are done, else a list. Per run, the completed ones first: 1 done, 0 lost
--   (the run no longer counts), 2 kept (no
--   other live worker knows its function, or the pause no longer holds
--   it), 3 cancelled instead, 4 the payload is missing (the script changed
--   nothing), 5 done, and no other live worker knows its function.
-- uses: keys, records, events, payloads, failed_attempts, suspects, unknown_functions, placement, limit_slots, holds, settlements, endings, admission, statistics
local DONE, CANCELLED = 1, 3
local $Settle(*) = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
permit_when_full()
local COMPLETED_FIELDS = $#CompletedRun + MEASURE_COUNT
local keys, count = {}, 0
for i = 1, #completed, COMPLETED_FIELDS do
  count = count + 1
  keys[count] = completed[i]
end
for i, item in ipairs(items) do keys[count + i] = item[1] end
if #keys == 0 then return {} end
local runs, tasks = call('HMGET', RUNNING, unpack(keys)), call('HMGET', TASKS, unpack(keys))
local some_parked = call('EXISTS', PARKED) == 1
-- `answer` has the answers that are not DONE.
local answer, ended, ended_keys, finished_keys, progress_keys, task_fields = {}, {}, {}, {}, {}, {}
local entries, front_entries, releases = {}, {}, {}
-- Who listens, and what there is to tell of the runs that ended plainly: {position, event or false,
-- record}.
local listeners, told = heard(keys, 1), {}

local full_settle
-- The full settle handles everything but a plain end of a run that held nothing. Few calls need it,
-- so the server makes these functions only then.
local function make_full_settle()
  --- parts
  local LOST_ANSWER, KEPT, MISSING, WAITS = 0, 2, 4, 5
  local notified = {}

  local function add_ending(s, run, task_bytes)
    local key = s.key
    local made_progress = s.has_progress or has_progress(flags_of(task_bytes))
    local progress = made_progress and call('HGET', PROGRESS, key) or ''
    local state, ttl = s.state, s.ttl or task_ttl
    if s.is_stored then
      local result = result_payload(run.epoch)
      call('PEXPIRE', result, ttl + spread_ms(result, 30000))
      state = state + RESULT_APART
    end
    if s.purpose >= ENDS_CHAIN then keep_chain_cancelled(key) end
    finished_keys[#finished_keys + 1] = key
    if made_progress then progress_keys[#progress_keys + 1] = key end
    local record = pack_finished(state, run.epoch, run.started, now, task_bytes, progress, s.tail)
    end_any_task(key, record, now, task_bytes, ttl, s.event or completed_event(run.worker, now), s.letter)
  end

  -- Notifies the workers that know a function once per batch.
  local function leave_to_workers_that_know(key, task, epoch)
    to_unknown(key, task, epoch, now)
    if not notified[task.name] then
      notified[task.name] = true
      notify_workers_that_know(task.name)
    end
  end

  local function add_next_run(s, run, task, task_bytes)
    local key = s.key
    local begun = s.kind == RESCHEDULE and not s.same_submission or s.kind == REQUEUE and s.has_begun
    if begun or not has_progress(task.flags) then
      progress_keys[#progress_keys + 1] = key
      if begun and has_progress(task.flags) then task.flags = task.flags - HAS_PROGRESS end
    end
    if s.kind == RESCHEDULE then
      -- This record is not stored: a waiter gets the result from this event.
      if s.state then
        publish_ending(key, s.event, 'g', pack_finished(s.state, run.epoch, run.started, now, task_bytes, '', s.tail))
      end
      if s.state == COMPLETED_STATE and is_revived(task.flags) then
        forget_deaths(key, task_bytes)
        task.flags = task.flags - REVIVED
      end
      task.due = s.is_relative and now + s.ms or s.ms
      task.attempt = s.attempt
      if not s.same_submission then
        task.losses, task.submission = 0, (task.submission + 1) % 2 ^ 32
        if was_admitted(task) then task.flags = task.flags - WAS_ADMITTED end
        if s.failure then
          add_failed_attempt(key, task, run, now, s.failure)
        elseif was_retried(task.flags) then
          forget_failed_attempts(key, task)
        end
      end
      if s.name then
        local payload = s.is_stored and named_payload(s.call)
        drop_payload(task_bytes, payload)
        if payload then adopt_payload(payload) end
        task.name, task.call, task.flags = s.name, s.call, task.flags - task.flags % 2 + (payload and APART or 0)
      end
      to_stream_or_schedule(key, task, now)
      if s.same_submission and task.due > now then
        --- parts
        note_delay(task_ttl, key, 'blocked', task.due, 0, 0, '')
      end
    elseif s.kind == UNKNOWN then
      leave_to_workers_that_know(key, task, s.epoch)
    elseif s.kind == HOLD then
      to_held(key, task, s.rule, has_flag(run, FROM_FRONT))
    else
      -- The task record says that the body has begun before.
      if s.has_begun then
        if task.losses < BEGUN then task.losses = task.losses + BEGUN end
        remember_admission(task, run)
      end
      if s.delay > 0 then
        --- parts
        task.due = now + s.delay
        to_schedule(key, task)
        note_delay(task_ttl, key, 'requeue', task.due, 0, 0, '')
      else
        to_front(key, task)
      end
    end
    task_fields[#task_fields + 1] = key
    task_fields[#task_fields + 1] = pack_task(task)
    local event = waiting_event(task)
    if s.error then event = string.sub(event, 1, -2) .. ',"error":' .. s.error .. '}' end
    publish(key, event)
  end

  -- A replaced run changes nothing, but no longer needs its slots.
  local function release_replaced_run(epoch)
    local field = string.format('%.0f', epoch)
    local bytes = call('HGET', REPLACED_RUNS, field)
    if bytes then
      call('HDEL', REPLACED_RUNS, field)
      local run = unpack_run(bytes)
      if run then release_slots(run) else note_damaged_run() end
    end
  end

  -- A run that no longer counts closes its cooldown window, if no later run was admitted by that
  -- window: the window must not drop the replacement. Its count in a rate limit expires, since a
  -- later run of the same submission may have begun.
  local function settle_limits(taken, s, run)
    --- parts
    local COOLDOWN = 2
    if run then
      local comes_back = s.kind == RESCHEDULE and s.same_submission and not has_flag(run, CANCEL_ASKED)
      return give_back(taken, run.epoch, comes_back)
    end
    for _, t in ipairs(taken) do
      if t[1] == COOLDOWN then close_window(t[2], s.epoch) end
    end
  end

  -- The payload that was stored for this settlement, or nil.
  local function stored_payload(s)
    if not s.is_stored then return nil end
    return s.kind == FINISH and result_payload(s.epoch) or named_payload(s.call)
  end

  return function(item, run_bytes, task_bytes)
    local s, run, taken = read_settlement(item, claimed_by), run_bytes and unpack_run(run_bytes), nil
    if s.kind == BLOCKED then
      local owner = s.owner
      taken, s = s.taken, read_settlement(s.settlement, owner)
    end
    local key = s.key
    local is_ours = run and run.epoch == s.epoch and (not s.owner or run.worker == s.owner)
    if not is_ours or not task_bytes or ended[key] then
      if taken then settle_limits(taken, s, nil) end
      release_replaced_run(s.epoch)
      return LOST_ANSWER
    end
    local task = s.kind ~= FINISH and unpack_task(task_bytes)
    local waits = s.kind == UNKNOWN and not is_known_elsewhere(task.name, run.worker)
    if waits and s.only_if_known then return KEPT end
    if s.kind == HOLD and not is_holding(call('HGET', PAUSES, s.rule), has_flag(run, FROM_FRONT)) then return KEPT end
    local stored = stored_payload(s)
    if stored and call('EXISTS', stored) == 0 then return MISSING end
    if taken then settle_limits(taken, s, run) end
    ended[key] = true
    ended_keys[#ended_keys + 1] = key
    if run.entry_ms > 0 then
      local list = stream_of_run(run) == FRONT and front_entries or entries
      list[#list + 1], list[#list + 2] = run.entry_ms, run.entry_seq
    end
    local comes_back = s.kind == REQUEUE or s.kind == UNKNOWN or s.kind == HOLD or s.kind == RESCHEDULE and s.same_submission
    releases[#releases + 1] = {key, run, comes_back and not has_flag(run, CANCEL_ASKED)}
    if s.kind == FINISH then
      add_ending(s, run, task_bytes)
    elseif has_flag(run, CANCEL_ASKED) then
      -- The cancel came too late for this run, so it ends the task instead of the next run.
      if stored then call('UNLINK', stored) end
      add_ending({key = key, state = CANCELLED_STATE, ttl = task_ttl, tail = CANCELLED_TAIL, event = CANCELLED_EVENT,
        purpose = PLAIN, has_progress = true}, run, task_bytes)
      return CANCELLED
    else
      add_next_run(s, run, task, task_bytes)
    end
    return waits and WAITS or DONE
  end
end

local byte, sub, find, read_run = string.byte, string.sub, string.find, struct.unpack
-- How the run record of this worker ends if the run has no flags and holds no slots. A record with
-- this end can be read.
local plain_end = claimed_by and struct.pack($RUN_END{flags = 0, worker = claimed_by, limits_size = 0})
local plain_size = plain_end and RUN_FLAGS_AT - 1 + #plain_end
-- Whether each key is the last segment of a key name as it is. One search in all of them costs less
-- than one in each.
local all_keys = table.concat(keys)
local are_segments = not find(all_keys, '%', 1, true) and not find(all_keys, ':', 1, true)
-- Parts of the last finished record, which most records share: the time and the size of the task
-- record, and what follows the task record.
local now_bytes, last_size, now_and_size, last_tail, record_end = struct.pack('<d', now), nil, nil, nil, nil
-- The keys of the runs that ended plainly, and the numbers of these keys and of all entries.
local plain_keys, n, e = {}, 0, 0
-- The finished records that are written together, each after its key, and the number of both.
local together, f = count >= FEW_RECORDS and may_set_together() and {}, 0

-- Ends a run that held nothing and left nothing behind. Returns whether the run is such a run.
-- Makes the same record as pack_finished.
-- twin of: settle_fully (settle.lua)
local function end_plainly(i, key, epoch, start, ttl, tail, event)
  local run_bytes, task_bytes = runs[i], tasks[i]
  if not run_bytes or not task_bytes or some_parked or byte(task_bytes, TASK_FLAGS_AT) ~= 0 or #run_bytes ~= plain_size
    or find(run_bytes, plain_end, RUN_FLAGS_AT, true) ~= RUN_FLAGS_AT then return false end
  local $RUN_START(epoch = run_epoch, entry_ms = ms, entry_seq = seq) = read_run(RUN_START, run_bytes)
  if run_epoch ~= epoch or ttl <= 0 or ms <= 0 or ms >= MOST then return false end
  if #task_bytes ~= last_size then
    last_size = #task_bytes
    now_and_size = now_bytes .. struct.pack('<I4', last_size)
  end
  if tail ~= last_tail then last_tail, record_end = tail, NO_PROGRESS .. tail end
  local record = start .. sub(run_bytes, 1, RUN_STARTED_END) .. now_and_size .. task_bytes .. record_end
  if together and ttl == task_ttl then
    together[f + 1], together[f + 2], f = RUNS .. (are_segments and key or segment(key)), record, f + 2
  else
    call('SET', RUNS .. (are_segments and key or segment(key)), record, 'PX', ttl)
  end
  n, e = n + 1, e + 2
  plain_keys[n], entries[e - 1], entries[e] = key, ms, seq
  if listeners ~= false and (not listeners or listeners[i]) then told[#told + 1] = {i, event or false, record} end
  return true
end

-- twin of: end_plainly (settle.lua)
local function settle_fully(i, item)
  full_settle = full_settle or make_full_settle()
  local result = full_settle(item, runs[i], tasks[i])
  if result ~= DONE then answer[i] = result end
end

local COMPLETED_START = string.char(1, COMPLETED_STATE)
local unusual = {}
-- completed runs, twin of: items (settle.lua)
for i = 1, count do
  local at = COMPLETED_FIELDS * i - COMPLETED_FIELDS
  if not end_plainly(i, completed[at + $CompletedRun.key], completed[at + $CompletedRun.epoch], COMPLETED_START, task_ttl, completed[at + $CompletedRun.tail]) then unusual[#unusual + 1] = i end
end
if #items > 0 or #unusual > 0 then
  for _, key in ipairs(plain_keys) do ended[key] = true end
  for _, i in ipairs(unusual) do
    local at = COMPLETED_FIELDS * i - COMPLETED_FIELDS
    settle_fully(i, {$FinishItem{key = completed[at + $CompletedRun.key], epoch = completed[at + $CompletedRun.epoch], kind = FINISH, state = COMPLETED_STATE, ttl = false, tail = completed[at + $CompletedRun.tail], event = false, purpose = PLAIN, has_progress = false, is_stored = false}})
  end
end
-- items, twin of: completed runs (settle.lua)
for at, item in ipairs(items) do
  -- The fields of a finish. The other kinds share the first three.
  local $FinishItem(*, has_progress = made_progress) = unpack(item)
  local may_be_plain = kind == FINISH and purpose == PLAIN and not made_progress and not is_stored and not ended[key]
  e = #entries
  if may_be_plain and end_plainly(count + at, key, epoch, string.char(1, state), ttl or task_ttl, tail, event) then
    ended[key] = true
  else
    settle_fully(count + at, item)
  end
end

if f > 0 then
  together[f + 1], together[f + 2] = 'PX', task_ttl
  call('MSETEX', f / 2, unpack(together))
end

if #told > 0 then
  --- parts
  for _, t in ipairs(told) do
    publish_ending(keys[t[1]], t[2] or completed_event(claimed_by, now), 'e', event_record(t[3]))
  end
end

-- Counts the settlements that were accepted.
do
  --- parts
  local counts, is_counted = {}, false
  -- Endings for the history: the first of each function, and all that may be failures.
  local finished = task_ttl > 0 and {} or nil
  -- The measures of the run are in `values`, behind `before`.
  -- twin of: counting completed runs (settle.lua)
  local function count_run(i, cell, values, before, item)
    local result = answer[i] or DONE
    if result == CANCELLED then cell = CANCELLED_KIND * KIND_CELL + (cell > 0 and cell % KIND_CELL or NO_TIMES) end
    if cell > 0 and (result == DONE or result == CANCELLED) then
      local name = name_in(tasks[i])
      local counted = counts[name]
      local has_others = cell >= NOT_SUCCEEDED
      if finished and (has_others or not counted) then
        local seconds_or_none = cell % KIND_CELL < NO_RUN_TIME and values[before + 1] or -1
        finished[name] = add_finished(finished[name],
          {{math.floor(cell / KIND_CELL), keys[i], tasks[i], runs[i], seconds_or_none, item or false, keep_ms or 0}, has_others = has_others})
      end
      if not counted then
        counted, is_counted = {}, true
        counts[name] = counted
      end
      counted[cell] = (counted[cell] or 0) + 1
      for m = 1, MEASURE_COUNT do counted[-m] = (counted[-m] or 0) + values[before + m] end
    end
  end
  -- The counts of the last function, and its name with its size as in a task record. Runs of one
  -- function often follow each other.
  local counted, last_name = nil, nil
  -- counting completed runs, twin of: count_run (settle.lua)
  for c = 1, count do
    local at = COMPLETED_FIELDS * c - MEASURE_COUNT
    local cell, task_bytes = completed[at], tasks[c]
    if counted and not answer[c] and cell > 0 and cell < NOT_SUCCEEDED and find(task_bytes, last_name, TASK_NAME_LENGTH_AT, true) == TASK_NAME_LENGTH_AT then
      counted[cell] = (counted[cell] or 0) + 1
      for m = 1, MEASURE_COUNT do counted[-m] = counted[-m] + completed[at + m] end
    else
      count_run(c, cell, completed, at)
      local name = task_bytes and name_in(task_bytes)
      counted = name and counts[name]
      last_name = counted and sub(task_bytes, TASK_NAME_LENGTH_AT, TASK_NAME_LENGTH_AT + 1 + #name)
    end
  end
  for at, cell in ipairs(cells) do count_run(count + at, cell, measures, (at - 1) * MEASURE_COUNT, items[at]) end
  if is_counted then count_cells(counts, now, finished) end
end

-- Most runs ended plainly: all of these have both records.
if #ended_keys > 0 then
  for i = 1, n do
    ended_keys[#ended_keys + 1], finished_keys[#finished_keys + 1] = plain_keys[i], plain_keys[i]
  end
elseif n > 0 then
  ended_keys, finished_keys = plain_keys, plain_keys
end
if #ended_keys > 0 then call('HDEL', RUNNING, unpack(ended_keys)) end
if #finished_keys > 0 then call('HDEL', TASKS, unpack(finished_keys)) end
if #progress_keys > 0 then call('HDEL', PROGRESS, unpack(progress_keys)) end
if #task_fields > 0 then call('HSET', TASKS, unpack(task_fields)) end
drop_run_entries(STREAM, entries)
drop_run_entries(FRONT, front_entries)
if #releases > 0 then
  --- parts
  for _, r in ipairs(releases) do
    if has_flag(r[2], SUSPECT) then
      stop_suspect(r[1], r[2].worker)
      if not r[3] then leave_group(r[1]) end
    end
    release_slots(r[2])
    if some_parked then leave_waiters(r[1]) end
  end
end
if offered_by then
  call('ZADD', OFFERS, real_ms() + offer_ms, offered_by)
  call('HSET', OFFER_SECRETS, offered_by, secret)
end
if not next(answer) then return DONE end
for i = 1, #keys do answer[i] = answer[i] or DONE end
return answer
