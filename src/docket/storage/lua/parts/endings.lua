-- Ends a task. Every task ends in end_task, or in replace_task if a new task takes its key.
-- Anything that must happen at the end of every task belongs in these two functions.
-- uses: keys, records, payloads, suspects, removal

-- A small record goes along with the event: whoever waits for the end need not ask for it. One that
-- is not stored goes along in any case.
local LARGEST_TOLD = 2048

local DEAD_LETTERS = 10000

-- A letter that goes, or is followed by another, takes its payload along.
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

-- Writes the finished record, if it has a time to live, and tells everybody. The caller has ended
-- the run, and takes the task out of the books.
local function end_task(key, record, ttl, event)
  if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
  if #record <= LARGEST_TOLD or ttl <= 0 then event = event .. '\n' .. record end
  call('PUBLISH', CHANNELS .. 'task/' .. key, event)
end

-- The same for a task that may have a payload, or becomes a dead letter, which keeps the payload.
local function end_any_task(key, record, now, task_bytes, ttl, event, is_dead_letter)
  if is_dead_letter then keep_dead_letter(key, now, record) end
  end_payload(key, task_bytes, ttl)
  end_task(key, record, ttl, event)
end

-- Ends a task that waits (without a run), or whose run is over, and takes it out of the books.
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

-- As ledger/endings.py packs the ending of a cancelled task: a test compares the two.
local CANCELLED_TAIL = '\148\196\0\192\0\196\0'
local CANCELLED_EVENT = '{"type":"state","state":"cancelled"}'

local function finish_cancelled(key, run, now, task_bytes, ttl)
  finish(key, CANCELLED_STATE, run, now, task_bytes, ttl, CANCELLED_TAIL, CANCELLED_EVENT)
end

-- Another task takes the key: the one that had it ends
-- without a record. `payload` is stored for the new one.
local function replace_task(key, task_bytes, task, payload)
  drop_payload(task_bytes, payload)
  if has_progress(task.flags) then call('HDEL', PROGRESS, key) end
  withdraw(key, task)
end

-- The chain of an automatic task is ended on purpose:
-- workers leave it at that until a newer deploy starts.
local function keep_chain_cancelled(key)
  if call('SISMEMBER', AUTOMATIC, key) == 1 then
    call('HSET', CANCELLED_CHAINS, key, string.format('%.0f', real_ms()))
  end
end
