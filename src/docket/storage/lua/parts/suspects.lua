-- Suspects: tasks with two losses or more, in groups (docs/design/lease-protocol.md;
-- docs/design/key-layout.md describes the fields).
-- uses: keys, fleet

local SUSPECT_AFTER = 2

-- A group's size when it was formed, and how many members it still has.
local function group_numbers(group)
  local size, live = string.match(call('HGET', SUSPECTS, 'g' .. group) or '', '^(%d+) (%d+)$')
  return tonumber(size or 0), tonumber(live or 0)
end

-- The worker no longer runs this suspect alone, nor has it reserved.
local function leave_alone(worker, key)
  if call('HGET', ALONE_WORKERS, worker) == key then call('HDEL', ALONE_WORKERS, worker) end
end

-- Whether so many workers are alone that this one may not be, too.
local function too_many_are_alone(worker)
  local alone = call('HLEN', ALONE_WORKERS) - call('HEXISTS', ALONE_WORKERS, worker)
  return alone >= math.max(1, math.floor(workers_with_lease() / 2))
end

-- Busy workers have not met the task, and no worker has reserved it.
local function forget_meeting(key)
  local met = call('HGET', SUSPECTS, 'm' .. key)
  if not met then return end
  local worker = string.match(met, '^%d+ (.+)$')
  if worker then
    call('HDEL', SUSPECTS, 'r' .. worker)
    leave_alone(worker, key)
  end
  call('HDEL', SUSPECTS, 'm' .. key)
end

local function change_group(group, joined, left)
  local size, live = group_numbers(group)
  live = live + joined - left
  if live > 0 then
    call('HSET', SUSPECTS, 'g' .. group, string.format('%d %d', size + joined, live))
  else
    call('HDEL', SUSPECTS, 'g' .. group)
  end
end

-- The task is not a suspect any more. Its run is over by now.
local function leave_group(key)
  forget_meeting(key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  call('HDEL', SUSPECTS, 't' .. key, 'l' .. key)
  if group then change_group(group, 0, 1) end
end

-- The same for all runs of a dead worker that were members
-- of one group, in whichever step they are recovered.
local function group_after_loss(worker, former)
  return string.sub(redis.sha1hex(worker .. '\n' .. (former or '')), 1, 16)
end

-- A suspect whose group is not known is a single one.
local function group_of(key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  if not group then
    group = string.sub(redis.sha1hex(key), 1, 16)
    call('HSET', SUSPECTS, 't' .. key, group)
    change_group(group, 1, 0)
  end
  return group, (group_numbers(group))
end

-- A run of a suspect was lost after it had lived for so long.
local function note_life(key, ms)
  local longest = tonumber(call('HGET', SUSPECTS, 'l' .. key) or 0)
  if ms > longest then call('HSET', SUSPECTS, 'l' .. key, string.format('%.0f', ms)) end
end

local LEAST_ALONE_MS = 60000

-- For how long a suspect has its worker to itself.
local function alone_ms(key)
  return math.max(tonumber(call('HGET', SUSPECTS, 'l' .. key) or 0), LEAST_ALONE_MS)
end

-- A run of a suspect is over; the task stays in its group.
local function stop_suspect(key, worker)
  leave_alone(worker, key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  if not group then return end
  local field = 'c' .. group .. ' ' .. worker
  if call('HINCRBY', SUSPECTS, field, -1) <= 0 then call('HDEL', SUSPECTS, field) end
end

-- What a worker has reserved, and what else is noted of it.
local function forget_worker(worker)
  local key = call('HGET', SUSPECTS, 'r' .. worker)
  if key then forget_meeting(key) end
  call('HDEL', SUSPECTS, 'b' .. worker, 'x' .. worker)
  call('HDEL', ALONE_WORKERS, worker)
end

local RUN_BESIDE, RUN_ALONE, ELSEWHERE, LATER, RESERVE = 1, 2, 3, 4, 5
-- How long idle workers have the first pick of a single suspect, and for how long a worker that
-- gave one up reserves none.
local FIRST_PICK_MS, NO_RESERVATION_MS = 1000, 60000

-- A busy worker has met a single suspect.
local function meet(key, worker, gives_up)
  local now = real_ms()
  local met, holder = string.match(call('HGET', SUSPECTS, 'm' .. key) or '', '^(%d+) ?(.*)$')
  if holder == worker and not gives_up then return RESERVE end
  if gives_up then
    met = nil
    call('HSET', SUSPECTS, 'b' .. worker, string.format('%.0f', now + NO_RESERVATION_MS))
  end
  met = tonumber(met or now)
  local busy_until = tonumber(call('HGET', SUSPECTS, 'b' .. worker) or 0)
  if now - met >= FIRST_PICK_MS and now >= busy_until and call('HEXISTS', SUSPECTS, 'r' .. worker) == 0
    and not too_many_are_alone(worker) then
    call('HSET', SUSPECTS, 'm' .. key, string.format('%.0f ', met) .. worker, 'r' .. worker, key)
    call('HSET', ALONE_WORKERS, worker, key)
    return RESERVE
  end
  forget_meeting(key)
  call('HSET', SUSPECTS, 'm' .. key, string.format('%.0f', met))
  return LATER
end

-- Whether a worker may run a suspect now, and how.
-- `is_idle` tells whether nothing else runs in its process.
local function judge_suspect(key, worker, is_idle, gives_up)
  local group, size = group_of(key)
  local field = 'c' .. group .. ' ' .. worker
  if size > 1 then
    local running = tonumber(call('HGET', SUSPECTS, field) or 0)
    if running >= math.max(1, math.floor(size / 2)) then return ELSEWHERE end
  elseif gives_up or not is_idle() or too_many_are_alone(worker) then
    return meet(key, worker, gives_up)
  end
  forget_meeting(key)
  call('HINCRBY', SUSPECTS, field, 1)
  if size > 1 then return RUN_BESIDE end
  call('HSET', ALONE_WORKERS, worker, key)
  return RUN_ALONE
end
