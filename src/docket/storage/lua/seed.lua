-- Decides which automatic tasks a worker should schedule. A cancelled chain stays cancelled until a
-- newer deploy starts.
-- ARGV[2]: msgpack {fingerprint of the deploy, list of names, which are also the keys of the
--   chains}.
-- Returns: per name: 0 schedule it (this changes nothing if the task exists), 1 it was cancelled, 2
--   it is a dead letter.
-- uses: keys, records
local TO_SCHEDULE, CANCELLED, BURIED = 0, 1, 2
local MOST_DEPLOYS = 100
local deploy, names = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
permit_when_full()

-- A deploy is as old as its first worker. The oldest deploys are forgotten.
local function appeared_at()
  local known = number_in(call('HGET', DEPLOYS, deploy))
  if known then return known end
  if call('HLEN', DEPLOYS) >= MOST_DEPLOYS then
    local all, oldest, least = call('HGETALL', DEPLOYS), nil, math.huge
    for i = 1, #all, 2 do
      local at = number_in(all[i + 1], 0)
      if at < least then oldest, least = all[i], at end
    end
    call('HDEL', DEPLOYS, oldest)
  end
  call('HSET', DEPLOYS, deploy, string.format('%.0f', now))
  return now
end

-- Whether a caller has added the chain since it was cancelled. A run that is still being cancelled
-- does not count.
local function was_added_again(name)
  if call('HEXISTS', TASKS, name) == 0 then return false end
  local run_bytes = call('HGET', RUNNING, name)
  local run = run_bytes and unpack_run(run_bytes)
  return not run or not has_flag(run, CANCEL_ASKED)
end

local appeared, answer = appeared_at(), {}

-- A buried chain waits until an operator retries it, or a user adds it.
local function is_buried(name)
  if call('ZSCORE', DEAD, name) then return true end
  if call('HEXISTS', BURIED_CHAINS, name) == 0 then return false end
  if was_added_again(name) then
    call('HDEL', BURIED_CHAINS, name)
    call('HDEL', CANCELLED_CHAINS, name)
    return false
  end
  return true
end

for i, name in ipairs(names) do
  call('SADD', AUTOMATIC, name)
  local buried = is_buried(name)
  -- A chain that was cancelled at an unknown time stays cancelled until the next deploy.
  local cancelled = call('HGET', CANCELLED_CHAINS, name)
  cancelled = cancelled and number_in(cancelled, 0) or -1
  if not buried and cancelled >= 0 and (appeared > cancelled or was_added_again(name)) then
    call('HDEL', CANCELLED_CHAINS, name)
    cancelled = -1
  end
  answer[i] = buried and BURIED or cancelled >= 0 and CANCELLED or TO_SCHEDULE
end
return answer
