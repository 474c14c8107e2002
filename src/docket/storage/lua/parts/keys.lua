-- Key names (storage/keys.py has the same list) and functions for every script. KEYS[1] is the
-- prefix of all key names; ARGV[1] is the prefix of all channels.
-- uses: nothing
-- A member of the leases that is not a worker. At its time the workers reclaim even if no lease has
-- ended.
local RECLAIM_DUE = ''
local CHANNELS = ARGV[1]
local call = redis.call

-- A user's text as the last segment of a key name; segment() in storage/keys.py follows the same
-- rule.
local function segment(text)
  if not string.find(text, '%', 1, true) and not string.find(text, ':', 1, true) then return text end
  return (string.gsub(text, '[%%:]', {['%'] = '%25', [':'] = '%3A'}))
end

-- Numbers of this size and above are not exact: docket does not write them.
local MOST = 2 ^ 53

-- The number that a value has. Whatever else somebody has written there counts as `default`
-- (docs/design/damaged-data.md).
local function number_in(value, default)
  local number = tonumber(value)
  if number and number > -MOST and number < MOST then return number end
  return default
end

-- The server's time in milliseconds, and in microseconds.
local function real_ms()
  local t = call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000), t[1] * 1000000 + t[2]
end

-- The time for tasks. A test may stop their clock (model/times.py): then a second key, a NUL and
-- digits, has the time.
local function server_ms()
  if not KEYS[2] then return real_ms() end
  local held = string.match(KEYS[2], '^%z(%d+)$')
  return tonumber(held), held * 1000
end

-- A server that is out of memory refuses a script whose first write needs memory, but allows all
-- further writes of a script that has already written. Scripts that must work on a full server
-- (settle, renew, cancel, …) start with this write, which needs no memory.
local function permit_when_full()
  call('HDEL', REPLACED_RUNS, '')
end

local function publish(key, event)
  call('PUBLISH', CHANNELS .. 'task/' .. key, event)
end

-- The group starts at '0': every entry of a stream belongs to an unfinished task, so a group that
-- is created again must deliver all of them.
local function ensure_groups()
  for _, stream in ipairs({STREAM, FRONT}) do
    local made = redis.pcall('XGROUP', 'CREATE', stream, GROUP, '0', 'MKSTREAM')
    if type(made) == 'table' and made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then
      error(made.err)
    end
  end
end

-- Deletes a key of another type.
local function drop_unless(name, type)
  local found = call('TYPE', name).ok
  if found ~= 'none' and found ~= type then call('DEL', name) end
end
