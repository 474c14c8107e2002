-- Adds the counts of one minute that is over to its hour, once, and samples the backlog, once a
-- minute.
-- No arguments.
-- Returns: how many minutes that are over are left.
-- uses: keys, statistics, locations
local left = 0

local function fold_oldest()
  local this_minute = math.floor(server_ms() / MINUTE_MS)
  local minute = call('ZRANGE', STATS_OPEN, 0, 0)[1]
  if not minute or (tonumber(minute) or 0) >= this_minute then return end
  permit_when_full()
  -- First of all: a minute that cannot be folded must not keep the others from it.
  call('ZREM', STATS_OPEN, minute)
  left = call('ZCOUNT', STATS_OPEN, '-inf', this_minute - 1)
  fold_minute(minute)
end

-- How many tasks wait and run now, and how many endings this minute has so far
-- (docs/design/web.md).
local MOST_SAMPLES, SAMPLES_MS = 200, 14400000

local function take_sample()
  local now = server_ms()
  local minute, ended = math.floor(now / MINUTE_MS), 0
  if call('ZCOUNT', STATS_SAMPLES, minute, '+inf') > 0 then return end
  local fields = call('HGETALL', STATS_MINUTE .. string.format('%.0f', minute))
  for i = 1, #fields, 2 do
    for at, count in pairs(fields[i] ~= MARK and read_row(fields[i + 1]) or {}) do
      if type(count) == 'number' and at >= KINDS and at < WAITING_TIMES then ended = ended + count end
    end
  end
  permit_when_full()
  local sample = {now, call('HLEN', TASKS), call('HLEN', RUNNING), ended}
  for i, value in ipairs(sample) do sample[i] = string.format('%.0f', value) end
  for i, count in ipairs(count_locations()) do sample[#sample + 1] = COUNTED[i] .. '=' .. string.format('%.0f', count) end
  call('ZADD', STATS_SAMPLES, minute, table.concat(sample, ' '))
  call('ZREMRANGEBYRANK', STATS_SAMPLES, 0, -MOST_SAMPLES - 1)
  call('PEXPIRE', STATS_SAMPLES, SAMPLES_MS)
end

count_safely(take_sample)
count_safely(fold_oldest)
return left
