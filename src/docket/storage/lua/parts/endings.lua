-- Ends a task. Every task ends in end_task, or in replace_task if a new task takes its key.
-- Anything that must happen at the end of every task belongs in these two functions.
-- uses: keys, records, events, payloads, letters, failed_attempts, suspects, removal, proofs, statistics

-- A small record is published, so that a waiter need not read it. A record that is not stored is
-- published whatever its size.
local LARGEST_IN_EVENT = 2048

-- For so few records it costs less to write each than to ask whether they may be written together.
local FEW_RECORDS = 4

-- Whether this server can write many finished records with one command. Redis has that command from
-- 8.4 on, Valkey from 9.1 on, and the rules for a user may lack it.
local function may_set_together()
  local is_new = (redis.VALKEY_VERSION_NUM or 0) >= 0x90100 or (redis.REDIS_VERSION_NUM or 0) >= 0x80400
  if not is_new then return false end
  local is_known, is_allowed = pcall(redis.acl_check_cmd, 'MSETEX', 1, RUNS, '')
  return is_known and is_allowed
end

-- Publishes the event of an ending, and the record with its proof if somebody listens
-- (docs/design/proofs.md). `flag`: 'e' the task has ended, 'g' the task goes on.
local function publish_ending(key, event, flag, record)
  local channel = CHANNELS .. 'task/' .. key
  if call('PUBLISH', channel, event) > 0 or IS_CLUSTER then
    --- parts
    local body = flag .. record
    call('PUBLISH', channel, 'E' .. proof('ending', key, body) .. body)
  end
end

-- The record for an event.
local function event_record(record)
  return #record <= LARGEST_IN_EVENT and record or ''
end

-- Stores the finished record, if it has a time to live, and publishes the event. The caller has
-- ended the run, and deletes the task record.
local function end_task(key, record, ttl, event)
  if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
  publish_ending(key, event, 'e', ttl > 0 and event_record(record) or record)
end

-- The same for a task that may have a payload or may have been retried. `letter` says how to keep a
-- task that has failed for good (parts/letters.lua); a kept letter owns the payload.
local function end_any_task(key, record, now, task_bytes, ttl, event, letter)
  local kept = false
  if letter then
    --- parts
    kept = keep_letter(key, now, record, task_bytes, letter)
  end
  if not kept then end_payload(task_bytes, ttl) end
  forget_deaths(key, task_bytes)
  if was_retried(flags_of(task_bytes)) then
    --- parts
    end_failed_attempts(key, ttl)
  end
  end_task(key, record, ttl, event)
end

-- Ends a task that waits (`run` is nil) or whose run is over, deletes its record, and counts its
-- ending.
local function finish(key, state, kind, run, now, task_bytes, ttl, tail, event, letter)
  local progress = call('HGET', PROGRESS, key) or ''
  call('HDEL', TASKS, key)
  call('HDEL', PROGRESS, key)
  if (string.byte(task_bytes, TASK_LOSSES_AT) or 0) % BEGUN >= SUSPECT_AFTER then
    --- parts
    leave_group(key)
  end
  local epoch, started = run and run.epoch or 0, run and run.started or 0
  local record = pack_finished(state, epoch, started, now, task_bytes, progress, tail)
  end_any_task(key, record, now, task_bytes, ttl, event, letter)
  do
    --- parts
    count_ending(key, task_bytes, kind, now, run, ttl, event, letter and letter[$LetterFields.age] or 0)
  end
end

-- The event of a run that has completed; ending_event() in ledger/endings.py writes the same text.
local function completed_event(worker, now)
  return '{"type":"state","state":"completed","worker":' .. name_json(worker) .. ',"completed_at":' .. string.format('%.0f', now) .. '}'
end

local function finish_cancelled(key, run, now, task_bytes, ttl)
  finish(key, CANCELLED_STATE, CANCELLED_KIND, run, now, task_bytes, ttl, CANCELLED_TAIL, CANCELLED_EVENT)
end

-- A new task takes the key, and the old task ends without a finished record. `payload` belongs to
-- the new task.
local function replace_task(key, task_bytes, task, payload)
  drop_payload(task_bytes, payload)
  forget_deaths(key, task_bytes)
  if has_progress(task.flags) then call('HDEL', PROGRESS, key) end
  if was_retried(task.flags) then
    --- parts
    forget_failed_attempts(key, task)
  end
  remove_from_location(key, task)
end

-- The chain of an automatic task was ended on purpose: workers do not start it again until a newer
-- deploy starts.
local function keep_chain_cancelled(key)
  if call('SISMEMBER', AUTOMATIC, key) == 1 then
    call('HSET', CANCELLED_CHAINS, key, string.format('%.0f', real_ms()))
  end
end
