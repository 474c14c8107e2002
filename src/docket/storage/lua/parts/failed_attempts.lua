-- The failed attempts of tasks that were retried (docs/design/key-layout.md). Python reads the
-- rows: ledger/failed_attempts.py.
-- uses: keys

local MOST_ROWS = 10
-- A row outlives the due time of the retry by a week.
local KEPT_MS = 604800000

local function was_retried(flags)
  return math.floor(flags / RETRIED) % 2 == 1
end

-- The newest of these rows, so that there is room
-- for one more. Bytes that are not rows are dropped.
local function newest_rows(rows)
  local starts, at = {}, 1
  while at <= #rows do
    if at + FAILED_ATTEMPT_SIZE - 1 > #rows then return '' end
    starts[#starts + 1] = at
    local $FAILED_ATTEMPT(size) = struct.unpack(FAILED_ATTEMPT, rows, at)
    at = at + FAILED_ATTEMPT_SIZE + size
  end
  if at ~= #rows + 1 then return '' end
  if #starts < MOST_ROWS then return rows end
  return string.sub(rows, starts[#starts - MOST_ROWS + 2])
end

-- Without the flag, the rows that are stored are of an earlier task.
local function add_failed_attempt(key, task, run, now, row)
  local name, rows = FAILED_ATTEMPTS .. segment(key), ''
  if was_retried(task.flags) then
    local stored = redis.pcall('GET', name)
    if type(stored) == 'string' then rows = newest_rows(stored) end
  else
    task.flags = task.flags + RETRIED
  end
  local ttl = math.max(task.due - now, 0) + KEPT_MS
  call('SET', name, rows .. struct.pack($FAILED_ATTEMPT{started = run.started, ended = now, size = #row}) .. row, 'PX', string.format('%.0f', ttl))
end

-- The task goes on as if it had not been retried.
local function forget_failed_attempts(key, task)
  call('DEL', FAILED_ATTEMPTS .. segment(key))
  task.flags = task.flags - RETRIED
end

-- The rows expire with the finished record.
local function end_failed_attempts(key, ttl)
  local name = FAILED_ATTEMPTS .. segment(key)
  if ttl > 0 then call('PEXPIRE', name, ttl) else call('DEL', name) end
end
