-- Takes a slot of every limit for a run, or of none: then the task waits in the line of the first that is full.
-- KEYS: all. ARGV[2]: msgpack {key, epoch, list of {limit, most}, ttl ms, cancelled tail, cancelled event}.
-- Returns: 1 acquired, 2 parked, 0 lost.
--- include keys
--- include records
--- include moves
--- include ending
local key, epoch, limits, ttl, cancelled_tail, cancelled_event = unpack(cmsgpack.unpack(ARGV[2]))
insist()
local run_bytes, bytes = call('HGET', RUNNING, key), call('HGET', TASKS, key)
local run = run_bytes and unpack_run(run_bytes)
if not run or not bytes or run.epoch ~= epoch then return 0 end
if run.limits ~= '' then return 1 end

local kept = call('HGET', PARKED, key)
if kept then
  call('HDEL', PARKED, key)
  call('SREM', SLOTS .. kept, 'w' .. key)
end

local names, full = {}, nil
for i, l in ipairs(limits) do
  names[i] = l[1]
  call('HSET', LIMITS, l[1], l[2])
  local free = call('SCARD', SLOTS .. l[1]) < l[2]
  local first_in_line = kept == l[1] or call('ZCARD', LINE .. l[1]) == 0
  if not full and not (free and first_in_line) then full = l[1] end
end

if full then
  local task = unpack_task(bytes)
  end_run(key, run, false)
  if has_flag(run, CANCEL_ASKED) then
    finish(key, 5, run.epoch, run.started, server_ms(), bytes, ttl, cancelled_tail, cancelled_event)
  else
    task.place, task.entry_ms, task.entry_seq = LINED, 0, 0
    call('HSET', TASKS, key, pack_task(task))
    call('HDEL', PROGRESS, key)
    call('HSET', PARKED, key, full)
    call('ZADD', LINE .. full, run.epoch, key)
    publish(key, waiting_event(task))
  end
else
  for _, name in ipairs(names) do call('SADD', SLOTS .. name, 'r' .. string.format('%.0f', epoch)) end
  run.limits = table.concat(names, '\n')
  call('HSET', RUNNING, key, pack_run(run))
end

-- A limit that was raised since may have room for those who wait; one that nobody uses is forgotten.
if kept then wake_line(kept) end
for _, name in ipairs(names) do wake_line(name) end
return full and 2 or 1
