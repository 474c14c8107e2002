-- Writes down how a batch of runs ended, each fenced by its epoch and its worker.
-- ARGV[2]: msgpack {cancelled tail, cancelled event, ttl ms, worker that offers a slot or false, for how many ms, list of {key, epoch, kind, …},
--   worker that claimed these runs, or false for any}. A run that another worker id has claimed has {epoch, that id} for its epoch. Kinds:
--   0 finish:     state, ttl ms, tail, event, 1 dead letter or 2 ends an automatic chain on purpose or 0, has progress
--                 (0/1), its result is a payload that was stored before (1 or nothing)
--   1 reschedule: relative (0/1), ms, attempt, function name or false, call or false, put off (0/1): the same submission comes later,
--                 the call is the reference to a payload (0/1); for a run that ends, unlike one that is retried: state, tail, event
--   2 hand back:  delay ms, has begun (0/1)
--   3 blocked:    what the run took of its limits, and one of the above as a list of its own
--   4 unknown function: only if another live worker knows it (0/1)
-- Returns: tasks left, then per run: 1 done, 0 lost (somebody else's by now), 2 kept (nobody knows its function), 3 cancelled instead,
--   4 the payload is missing (nothing was changed), 5 done, and nobody knows its function.
-- uses: keys, records, payloads, suspects, unknown, moves, slots, ending, admitting
local FINISH, DONE = 0, 1
local cancelled_tail, cancelled_event, cancelled_ttl, offering, offer_ms, items, claimed_by = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
insist()
if #items == 0 then return {call('HLEN', TASKS)} end
local keys = {}
for i, item in ipairs(items) do keys[i] = item[1] end
local runs, tasks = call('HMGET', RUNNING, unpack(keys)), call('HMGET', TASKS, unpack(keys))
local anyone_parked = call('EXISTS', PARKED) == 1
local answer, ended, ended_keys, over, over_progress, written = {0}, {}, {}, {}, {}, {}
local stream_ids, front_ids, releases = {}, {}, {}

local settle_otherwise
-- Everything but a plain end of a run that held nothing.
local function otherwise()
  --- parts
  local RESCHEDULE, HAND_BACK, BLOCKED, UNKNOWN, CANCELLED_STATE = 1, 2, 3, 4, 5
  local LOST_ANSWER, KEPT, CANCELLED, MISSING, WAITS = 0, 2, 3, 4, 5
  local told = {}

  local function end_later(item, run, task_bytes)
    local key, state, ttl, tail, event = item[1], item[4], item[5], item[6], item[7]
    local made_progress = item[9] == 1 or has_progress(string.byte(task_bytes, 3) or 0)
    local progress = made_progress and call('HGET', PROGRESS, key) or ''
    local stored = item[10] and RESULT_APART or 0
    local record = pack_finished(state + stored, run.epoch, run.started, now, task_bytes, progress, tail)
    if item[10] then
      local result = result_payload(run.epoch)
      call('PEXPIRE', result, ttl + spread_ms(result, 30000))
    end
    if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
    if item[8] == 1 then keep_dead_letter(key, now, record) end
    end_payload(key, task_bytes, ttl)
    if item[8] == 2 then keep_chain_cancelled(key) end
    over[#over + 1] = key
    if made_progress then over_progress[#over_progress + 1] = key end
    publish_ending(key, event, record, ttl)
  end

  -- Within a batch, the workers that know a function are told once.
  local function leave_to_others(key, task, epoch)
    to_unknown(key, task, epoch, now)
    if not told[task.name] then
      told[task.name] = true
      tell_workers_that_know(task.name)
    end
  end

  local function move_later(item, run, task, task_bytes)
    local key = item[1]
    local begun = item[3] == RESCHEDULE and item[9] ~= 1 or item[3] == HAND_BACK and item[5] == 1
    if begun or not has_progress(task.flags) then
      over_progress[#over_progress + 1] = key
      if begun and has_progress(task.flags) then task.flags = task.flags - HAS_PROGRESS end
    end
    if item[3] == RESCHEDULE then
      -- Stored nowhere: a waiter has the result from this event.
      if item[11] then
        publish(key, item[13] .. '\n' .. pack_finished(item[11], run.epoch, run.started, now, task_bytes, '', item[12]))
      end
      task.due = item[4] == 1 and now + item[5] or item[5]
      task.attempt = item[6]
      if item[9] ~= 1 then
        task.losses, task.submission = 0, (task.submission + 1) % 2 ^ 32
        if was_let_in(task) then task.flags = task.flags - WAS_LET_IN end
      end
      if item[7] then
        local payload = item[10] == 1 and named_payload(item[8])
        drop_payload(task_bytes, payload)
        if payload then adopt_payload(payload) end
        task.name, task.call, task.flags = item[7], item[8], task.flags - task.flags % 2 + item[10]
      end
      put(key, task, now)
    elseif item[3] == UNKNOWN then
      leave_to_others(key, task, item[2])
    else
      -- One whose body has begun before tells its next run so.
      if item[5] == 1 then
        if task.losses < BEGUN then task.losses = task.losses + BEGUN end
        remember_admission(task, run)
      end
      if item[4] > 0 then
        task.due = now + item[4]
        to_queue(key, task)
      else
        to_front(key, task)
      end
    end
    written[#written + 1] = key
    written[#written + 1] = pack_task(task)
    publish(key, waiting_event(task))
  end

  -- A run that was replaced meanwhile changes nothing, but no longer needs its slots.
  local function lay_ghost(epoch)
    local field = string.format('%.0f', epoch)
    local bytes = call('HGET', GHOSTS, field)
    if bytes then
      call('HDEL', GHOSTS, field)
      release_slots(unpack_run(bytes))
    end
  end

  -- A run that no longer counts closes the window that it alone was let in by: its replacement must not be dropped by it. A place
  -- in a rate is left to expire, since a later run may have begun in it.
  local function settle_limits(taken, item, run)
    --- parts
    local COOLDOWN = 2
    if run then
      local comes_back = item[3] == RESCHEDULE and item[9] == 1 and not has_flag(run, CANCEL_ASKED)
      return give_back(taken, run.epoch, comes_back)
    end
    for _, t in ipairs(taken) do
      if t[1] == COOLDOWN then close_window(t[2], item[2]) end
    end
  end

  -- What was stored for this settlement, or nil.
  local function stored_payload(item)
    if item[3] == FINISH then return item[10] and result_payload(item[2]) end
    return item[3] == RESCHEDULE and item[10] == 1 and named_payload(item[8]) or nil
  end

  return function(item, run_bytes, task_bytes)
    local key, run, owner = item[1], run_bytes and unpack_run(run_bytes), claimed_by
    if type(item[2]) == 'table' then item[2], owner = unpack(item[2]) end
    local taken = item[3] == BLOCKED and item[4]
    if taken then item = item[5] end
    local is_ours = run and run.epoch == item[2] and (not owner or run.worker == owner)
    if not is_ours or not task_bytes or ended[key] then
      if taken then settle_limits(taken, item, nil) end
      lay_ghost(item[2])
      return LOST_ANSWER
    end
    local task = item[3] ~= FINISH and unpack_task(task_bytes)
    local waits = item[3] == UNKNOWN and not is_known_elsewhere(task.name, run.worker)
    if waits and item[4] == 1 then return KEPT end
    local stored = stored_payload(item)
    if stored and call('EXISTS', stored) == 0 then return MISSING end
    if taken then settle_limits(taken, item, run) end
    ended[key] = true
    ended_keys[#ended_keys + 1] = key
    table.insert(stream_of_run(run) == FRONT and front_ids or stream_ids, entry_id(run))
    local same_submission = item[3] == HAND_BACK or item[3] == UNKNOWN or item[3] == RESCHEDULE and item[9] == 1
    local comes_back = same_submission and not has_flag(run, CANCEL_ASKED)
    releases[#releases + 1] = {key, run, comes_back}
    if item[3] == FINISH then
      end_later(item, run, task_bytes)
    elseif has_flag(run, CANCEL_ASKED) then
      -- A cancel that came too late for this run ends what would have followed it.
      if stored then call('UNLINK', stored) end
      end_later({key, 0, FINISH, CANCELLED_STATE, cancelled_ttl, cancelled_tail, cancelled_event, 0, 1}, run, task_bytes)
      return CANCELLED
    else
      move_later(item, run, task, task_bytes)
    end
    return waits and WAITS or DONE
  end
end

for i, item in ipairs(items) do
  local key, run_bytes, task_bytes, ttl = item[1], runs[i], tasks[i], item[5]
  local epoch, started, ms, seq, flags, owner, limits
  if run_bytes and task_bytes and item[3] == FINISH and item[8] == 0 and item[9] == 0 and not item[10] and not anyone_parked and not ended[key]
    and (string.byte(task_bytes, 3) or 0) == 0 then
    epoch, started, ms, seq, flags, owner, limits = struct.unpack(RUN, run_bytes)
  end
  if epoch == item[2] and (owner == claimed_by or not claimed_by) and flags == 0 and limits == '' and ttl > 0 then
    local n, record = #ended_keys + 1, pack_finished(item[4], epoch, started, now, task_bytes, '', item[6])
    ended[key], ended_keys[n], over[#over + 1] = true, key, key
    stream_ids[#stream_ids + 1] = string.format('%.0f-%.0f', ms, seq)
    call('SET', RUNS .. segment(key), record, 'PX', ttl)
    publish_ending(key, item[7], record, ttl)
    answer[i + 1] = DONE
  else
    settle_otherwise = settle_otherwise or otherwise()
    answer[i + 1] = settle_otherwise(item, run_bytes, task_bytes)
  end
end

if #ended_keys > 0 then call('HDEL', RUNNING, unpack(ended_keys)) end
if #over > 0 then call('HDEL', TASKS, unpack(over)) end
if #over_progress > 0 then call('HDEL', PROGRESS, unpack(over_progress)) end
if #written > 0 then call('HSET', TASKS, unpack(written)) end
drop_entries(STREAM, stream_ids)
drop_entries(FRONT, front_ids)
if #releases > 0 then
  --- parts
  for _, r in ipairs(releases) do
    if has_flag(r[2], SUSPECT) then
      stop_suspect(r[1], r[2].worker)
      if not r[3] then leave_group(r[1]) end
    end
    release_slots(r[2])
    if anyone_parked then leave_line(r[1]) end
  end
end
if offering then call('ZADD', OFFERS, real_ms() + offer_ms, offering) end
answer[1] = call('HLEN', TASKS)
return answer
