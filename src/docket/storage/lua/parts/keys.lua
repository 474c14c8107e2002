-- Names for KEYS, in the order in which storage/keys.py lists them, and the arguments every script shares.
local STREAM, QUEUE, TASKS, RUNNING, GHOSTS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local PROGRESS, LEASES, LOST, DYING, SUSPECTS = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local EPOCH, DEAD, DEAD_RECORDS, LIMITS, PARKED = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local SLOTS, LINE, ORDERS, WORKER_TASKS, TASK_WORKERS = KEYS[16], KEYS[17], KEYS[18], KEYS[19], KEYS[20]
local RUNS, FRONT, LENGTHS, GRACED, SWEPT = KEYS[21], KEYS[22], KEYS[23], KEYS[24], KEYS[25]
local GROUP = 'docket-workers'
-- Among the leases: nobody's. It ends when the workers should look for lost ones though no lease has ended.
local CALL = ''
local CHANNELS = ARGV[1]
local call = redis.call

-- A user's text as the last segment of a key name; the same rule as keys.segment() in storage/keys.py.
local function segment(text)
  return (string.gsub(text, '[%%:]', {['%'] = '%25', [':'] = '%3A'}))
end

-- The server's time in milliseconds, and in microseconds.
local function real_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000), t[1] * 1000000 + t[2]
end

-- The same for tasks. A test may hold their clock (model/clock.py): then a last key, a NUL and digits, tells the time.
local function server_ms()
  local held = string.match(KEYS[#KEYS], '^%z(%d+)$')
  if not held then return real_ms() end
  return tonumber(held), held * 1000
end

-- A server that is out of memory refuses a script's first write if it needs memory, and lets the rest through once the
-- script has written. What must work on a full server (settling, renewing, cancelling) starts with a write that needs none.
local function insist()
  call('HDEL', GHOSTS, '')
end

local function publish(key, event)
  call('PUBLISH', CHANNELS .. 'task/' .. key, event)
end

-- From '0': what lies on a stream is unfinished, so a group that is made anew must see all of it.
local function ensure_groups()
  for _, stream in ipairs({STREAM, FRONT}) do
    local made = redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
      error(made.err)
    end
  end
end
