-- Writes down how a batch of runs ended, each fenced by its epoch.
-- KEYS: all. ARGV[2]: msgpack {cancelled tail, cancelled event, ttl ms, list of {key, epoch, kind, …}}:
--   0 finish:     state, ttl ms, tail, event, dead letter (0/1), has progress (0/1)
--   1 reschedule: relative (0/1), ms, attempt, function name or false, call or false
--   2 hand back:  delay ms, function name that another live worker must know or false, has begun (0/1)
-- Returns: tasks left, then per run: 1 done, 0 lost (somebody else's by now), 2 kept (nobody to hand it to), 3 cancelled instead.
--- include keys
--- include records
--- include moves
--- include ending
local FINISH, RESCHEDULE, CANCELLED_STATE = 0, 1, 5
local cancelled_tail, cancelled_event, cancelled_ttl, items = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
insist()
if #items == 0 then return {call('HLEN', TASKS)} end
local keys = {}
for i, item in ipairs(items) do keys[i] = item[1] end
local runs, tasks = call('HMGET', RUNNING, unpack(keys)), call('HMGET', TASKS, unpack(keys))
local anyone_parked = call('EXISTS', PARKED) == 1
local answer, ended, over, over_progress, progress_of, written = {0}, {}, {}, {}, {}, {}
local entries = {[STREAM] = {}, [FRONT] = {}}

-- The progress of all that has any, in one read.
local with_progress = {}
for _, item in ipairs(items) do
  if item[3] == FINISH and item[9] == 1 then with_progress[#with_progress + 1] = item[1] end
end
if #with_progress > 0 then
  local found = call('HMGET', PROGRESS, unpack(with_progress))
  for i, key in ipairs(with_progress) do progress_of[key] = found[i] or '' end
end

local function known_elsewhere(name, worker)
  for _, other in ipairs(call('SMEMBERS', TASK_WORKERS .. segment(name))) do
    if other ~= worker and call('ZSCORE', LEASES, other) then return true end
  end
  return false
end

local function finish_later(item, run, task_bytes)
  local key, state, ttl, tail, event = item[1], item[4], item[5], item[6], item[7]
  if ttl > 0 or item[8] == 1 then
    local record = pack_finished(state, run.epoch, run.started, now, task_bytes, progress_of[key] or '', tail)
    if ttl > 0 then call('SET', RUNS .. segment(key), record, 'PX', ttl) end
    if item[8] == 1 then keep_dead_letter(key, now, record) end
  end
  over[#over + 1] = key
  if item[9] == 1 then over_progress[#over_progress + 1] = key end
  publish(key, event)
end

local function move_later(item, task_bytes)
  local key, task = item[1], unpack_task(task_bytes)
  if item[3] == RESCHEDULE then
    task.due = item[4] == 1 and now + item[5] or item[5]
    task.attempt, task.recoveries = item[6], 0
    if item[7] then task.name, task.call = item[7], item[8] end
    place(key, task, now)
  else
    -- One whose body has begun before tells its next run so.
    if item[6] == 1 then task.recoveries = math.max(task.recoveries, 1) end
    if item[4] > 0 then
      task.due = now + item[4]
      to_queue(key, task)
    else
      to_front(key, task)
    end
  end
  written[#written + 1] = key
  written[#written + 1] = pack_task(task)
  over_progress[#over_progress + 1] = key
  publish(key, waiting_event(task))
end

local function release(key, run)
  if has_flag(run, SUSPECT) then call('HDEL', SUSPECTS, run.worker) end
  release_slots(run)
  if anyone_parked then leave_line(key) end
end

-- A run that was replaced meanwhile changes nothing, but no longer needs its slots.
local function lay_ghost(epoch)
  local field = string.format('%.0f', epoch)
  local bytes = call('HGET', GHOSTS, field)
  if bytes then
    call('HDEL', GHOSTS, field)
    release_slots(unpack_run(bytes))
  end
end

local releases = {}
for i, item in ipairs(items) do
  local key = item[1]
  local run = runs[i] and unpack_run(runs[i])
  if not run or run.epoch ~= item[2] or not tasks[i] or ended[key] then
    answer[#answer + 1] = 0
    lay_ghost(item[2])
  elseif item[3] > RESCHEDULE and item[5] and not known_elsewhere(item[5], run.worker) then
    answer[#answer + 1] = 2
  else
    ended[key] = true
    local code = 1
    table.insert(entries[stream_of_run(run)], entry_id(run))
    releases[#releases + 1] = {key, run}
    if item[3] == FINISH then
      finish_later(item, run, tasks[i])
    elseif has_flag(run, CANCEL_ASKED) then
      -- A cancel that came too late for this run ends what would have followed it.
      finish_later({key, 0, FINISH, CANCELLED_STATE, cancelled_ttl, cancelled_tail, cancelled_event, 0, 1}, run, tasks[i])
      code = 3
    else
      move_later(item, tasks[i])
    end
    answer[#answer + 1] = code
  end
end

local ended_keys = {}
for key in pairs(ended) do ended_keys[#ended_keys + 1] = key end
if #ended_keys > 0 then call('HDEL', RUNNING, unpack(ended_keys)) end
if #over > 0 then call('HDEL', TASKS, unpack(over)) end
if #over_progress > 0 then call('HDEL', PROGRESS, unpack(over_progress)) end
if #written > 0 then call('HSET', TASKS, unpack(written)) end
drop_entries(STREAM, entries[STREAM])
drop_entries(FRONT, entries[FRONT])
for _, r in ipairs(releases) do release(r[1], r[2]) end
answer[1] = call('HLEN', TASKS)
return answer
