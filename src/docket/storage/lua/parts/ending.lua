-- Ends a task for good: its record moves from the books to a finished record with a time to live.

local function finish(key, state, epoch, started, now, task_bytes, ttl, tail, event)
  if ttl > 0 then
    local progress = call('HGET', PROGRESS, key) or ''
    call('SET', RUNS .. segment(key), pack_finished(state, epoch, started, now, task_bytes, progress, tail), 'PX', ttl)
  end
  call('HDEL', TASKS, key)
  call('HDEL', PROGRESS, key)
  publish(key, event)
end

local DEAD_LETTERS = 10000

local function keep_dead_letter(key, now, record)
  call('ZADD', DEAD, now, key)
  call('HSET', DEAD_RECORDS, key, record)
  local excess = call('ZCARD', DEAD) - DEAD_LETTERS
  if excess > 0 then
    local oldest = call('ZPOPMIN', DEAD, excess)
    for i = 1, #oldest, 2 do call('HDEL', DEAD_RECORDS, oldest[i]) end
  end
end
