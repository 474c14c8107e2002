-- Ends a task for good: its record moves from the books to a finished record with a time to live.
-- uses: keys, records, payloads, suspects

-- A small record goes along with the event: whoever waits for the end need not ask for it. One that is not stored goes along in any case.
local LARGEST_TOLD = 2048

local function publish_ending(key, event, record, ttl)
  if #record <= LARGEST_TOLD or ttl <= 0 then event = event .. '\n' .. record end
  publish(key, event)
end

local function finish(key, state, epoch, started, now, task_bytes, ttl, tail, event)
  local progress = call('HGET', PROGRESS, key) or ''
  local record = pack_finished(state, epoch, started, now, task_bytes, progress, tail)
  if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
  call('HDEL', TASKS, key)
  call('HDEL', PROGRESS, key)
  end_payload(key, task_bytes, ttl)
  if (string.byte(task_bytes, TASK_LOSSES_AT) or 0) % BEGUN >= SUSPECT_AFTER then
    --- parts
    leave_group(key)
  end
  publish_ending(key, event, record, ttl)
end

-- The chain of an automatic task is ended on purpose: workers leave it at that until a newer deploy starts.
local function keep_chain_cancelled(key)
  if call('SISMEMBER', AUTOMATIC, key) == 1 then
    call('HSET', CANCELLED_CHAINS, key, string.format('%.0f', real_ms()))
  end
end

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
