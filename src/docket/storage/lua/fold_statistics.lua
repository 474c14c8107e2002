-- Adds the counts of one minute that is over to its hour, once.
-- No arguments.
-- Returns: how many minutes that are over are left.
-- uses: keys, statistics
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

count_safely(fold_oldest)
return left
