-- Ends a task. Every task ends in end_task, or in replace_task if a new task takes its key.
-- Anything that must happen at the end of every task belongs in these two functions.
-- uses: keys, records, payloads, failed_attempts, suspects, removal, proofs

-- A small record is published, so that a waiter need not read it. A record that is not stored is
-- published whatever its size.
local LARGEST_IN_EVENT = 2048

-- On a cluster the prefix begins with a brace, and PUBLISH does not count the listeners of other
-- nodes.
local IS_CLUSTER = string.byte(P) == 123

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

local DEAD_LETTERS = 10000

-- A deleted or overwritten dead letter frees its payload.
local function drop_letter_payload(key, needed)
  local payload = letter_payload(key)
  if payload and payload ~= needed then free_payload(payload) end
end

local function keep_dead_letter(key, now, record)
  drop_letter_payload(key, payload_of(finished_task(record)))
  call('ZADD', DEAD, now, key)
  call('HSET', DEAD_RECORDS, key, record)
  local excess = call('ZCARD', DEAD) - DEAD_LETTERS
  if excess > 0 then
    local oldest = call('ZPOPMIN', DEAD, excess)
    for i = 1, #oldest, 2 do
      drop_letter_payload(oldest[i])
      call('HDEL', DEAD_RECORDS, oldest[i])
    end
  end
end

-- Stores the finished record, if it has a time to live, and publishes the event. The caller has
-- ended the run, and deletes the task record.
local function end_task(key, record, ttl, event)
  if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
  publish_ending(key, event, 'e', (#record <= LARGEST_IN_EVENT or ttl <= 0) and record or '')
end

-- The same for a task that may have a payload, or becomes a dead letter, which keeps its payload.
local function end_any_task(key, record, now, task_bytes, ttl, event, is_dead_letter)
  if is_dead_letter then keep_dead_letter(key, now, record) end
  end_payload(key, task_bytes, ttl)
  if was_retried(flags_of(task_bytes)) then
    --- parts
    end_failed_attempts(key, ttl)
  end
  end_task(key, record, ttl, event)
end

-- Ends a task that waits (`run` is nil) or whose run is over, and deletes its record.
local function finish(key, state, run, now, task_bytes, ttl, tail, event, is_dead_letter)
  local progress = call('HGET', PROGRESS, key) or ''
  call('HDEL', TASKS, key)
  call('HDEL', PROGRESS, key)
  if (string.byte(task_bytes, TASK_LOSSES_AT) or 0) % BEGUN >= SUSPECT_AFTER then
    --- parts
    leave_group(key)
  end
  local epoch, started = run and run.epoch or 0, run and run.started or 0
  local record = pack_finished(state, epoch, started, now, task_bytes, progress, tail)
  end_any_task(key, record, now, task_bytes, ttl, event, is_dead_letter)
end

-- ledger/endings.py packs the same bytes for a cancelled task; a test compares the two.
local CANCELLED_TAIL = '\148\196\0\192\0\196\0'
local CANCELLED_EVENT = '{"type":"state","state":"cancelled"}'

local function finish_cancelled(key, run, now, task_bytes, ttl)
  finish(key, CANCELLED_STATE, run, now, task_bytes, ttl, CANCELLED_TAIL, CANCELLED_EVENT)
end

-- A new task takes the key, and the old task ends without a finished record. `payload` belongs to
-- the new task.
local function replace_task(key, task_bytes, task, payload)
  drop_payload(task_bytes, payload)
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
