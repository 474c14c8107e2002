-- Suspects: tasks with two losses or more, in groups (docs/design/lease-protocol.md;
-- docs/design/key-layout.md describes the fields).
-- uses: keys, fleet

-- The size of a group when it was formed, and the number of its present members.
local function group_numbers(group)
  local size, live = string.match(call('HGET', SUSPECTS, 'g' .. group) or '', '^(%d+) (%d+)$')
  return number_in(size, 0), number_in(live, 0)
end

-- The worker no longer runs this suspect alone, and has not reserved it.
local function leave_alone(worker, key)
  if call('HGET', ALONE_WORKERS, worker) == key then call('HDEL', ALONE_WORKERS, worker) end
end

-- Whether too many workers are alone already for this worker to be alone, too.
local function too_many_are_alone(worker)
  local alone = call('HLEN', ALONE_WORKERS) - call('HEXISTS', ALONE_WORKERS, worker)
  return alone >= math.max(1, math.floor(workers_with_lease() / 2))
end

-- Forgets when a busy worker first received the task, and the reservation of the task.
local function clear_reservation(key)
  local first_seen = call('HGET', SUSPECTS, 'm' .. key)
  if not first_seen then return end
  local worker = string.match(first_seen, '^%d+ (.+)$')
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

-- The task is no longer a suspect. Its run is over.
local function leave_group(key)
  clear_reservation(key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  call('HDEL', SUSPECTS, 't' .. key, 'l' .. key)
  if group then change_group(group, 0, 1) end
end

-- The group for a run of a dead worker: the same for all its runs that were members of one group,
-- in every step of the reclaim.
local function group_after_loss(worker, former)
  return string.sub(redis.sha1hex(worker .. '\n' .. (former or '')), 1, 16)
end

-- The group of a suspect and its size. A suspect without a group is single.
local function group_of(key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  if not group then
    group = string.sub(redis.sha1hex(key), 1, 16)
    call('HSET', SUSPECTS, 't' .. key, group)
    change_group(group, 1, 0)
  end
  return group, (group_numbers(group))
end

-- A run of a suspect was lost after `ms`.
local function note_life(key, ms)
  local longest = number_in(call('HGET', SUSPECTS, 'l' .. key), 0)
  if ms > longest then call('HSET', SUSPECTS, 'l' .. key, string.format('%.0f', ms)) end
end

local LEAST_ALONE_MS = 60000

-- How long a suspect runs alone in its worker.
local function alone_ms(key)
  return math.max(number_in(call('HGET', SUSPECTS, 'l' .. key), 0), LEAST_ALONE_MS)
end

-- A run of a suspect is over. The task stays in its group.
local function stop_suspect(key, worker)
  leave_alone(worker, key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  if not group then return end
  local field = 'c' .. group .. ' ' .. worker
  if call('HINCRBY', SUSPECTS, field, -1) <= 0 then call('HDEL', SUSPECTS, field) end
end

-- Deletes the reservation of a worker and all notes about it.
local function forget_worker(worker)
  local key = call('HGET', SUSPECTS, 'r' .. worker)
  if key then clear_reservation(key) end
  call('HDEL', SUSPECTS, 'b' .. worker, 'x' .. worker)
  call('HDEL', ALONE_WORKERS, worker)
end

local RUN_BESIDE, RUN_ALONE, ELSEWHERE, LATER, RESERVE = 1, 2, 3, 4, 5
-- For FIRST_PICK_MS only idle workers may run a single suspect. A worker that gave up a reservation
-- makes no other for NO_RESERVATION_MS.
local FIRST_PICK_MS, NO_RESERVATION_MS = 1000, 60000

-- A busy worker has received a single suspect: it reserves the suspect, or the suspect waits.
local function reserve_or_wait(key, worker, gives_up)
  local now = real_ms()
  local first_seen, holder = string.match(call('HGET', SUSPECTS, 'm' .. key) or '', '^(%d+) ?(.*)$')
  if holder == worker and not gives_up then return RESERVE end
  if gives_up then
    first_seen = nil
    call('HSET', SUSPECTS, 'b' .. worker, string.format('%.0f', now + NO_RESERVATION_MS))
  end
  first_seen = number_in(first_seen, now)
  local busy_until = number_in(call('HGET', SUSPECTS, 'b' .. worker), 0)
  if now - first_seen >= FIRST_PICK_MS and now >= busy_until and call('HEXISTS', SUSPECTS, 'r' .. worker) == 0
    and not too_many_are_alone(worker) then
    call('HSET', SUSPECTS, 'm' .. key, string.format('%.0f ', first_seen) .. worker, 'r' .. worker, key)
    call('HSET', ALONE_WORKERS, worker, key)
    return RESERVE
  end
  clear_reservation(key)
  call('HSET', SUSPECTS, 'm' .. key, string.format('%.0f', first_seen))
  return LATER
end

-- Whether and how a worker may run a suspect now. `is_idle()` says whether nothing else runs in the
-- worker's process.
local function judge_suspect(key, worker, is_idle, gives_up)
  local group, size = group_of(key)
  local field = 'c' .. group .. ' ' .. worker
  if size > 1 then
    local running = number_in(call('HGET', SUSPECTS, field), 0)
    if running >= math.max(1, math.floor(size / 2)) then return ELSEWHERE end
  elseif gives_up or not is_idle() or too_many_are_alone(worker) then
    return reserve_or_wait(key, worker, gives_up)
  end
  clear_reservation(key)
  call('HINCRBY', SUSPECTS, field, 1)
  if size > 1 then return RUN_BESIDE end
  call('HSET', ALONE_WORKERS, worker, key)
  return RUN_ALONE
end
