-- Takes over tasks that another program keeps under this docket's key names
-- (docs/design/foreign-tasks.md).
-- ARGV[2]: msgpack list of {source: 'queue', 'stream' or 'foreign', entry id or '', key, due ms,
--   function name, call, attempt, whether the call is the reference to a stored payload (0/1)}.
-- Returns: per task: 1 the task is docket's now, 2 docket has a task of that key already, so both
--   stay, 0 the task is gone, 3 its payload is missing (the script changed nothing).
-- uses: keys, records, payloads, foreign, placement
local STREAMS = {stream = STREAM, foreign = FOREIGN}
local now, now_us = server_ms()
local first_submission = now_us % 2 ^ 32

local function exists(source, id, key)
  if source ~= 'queue' then return #call('XRANGE', STREAMS[source], id, id) > 0 end
  return call('ZSCORE', FOREIGN_QUEUE, key)
end

local function remove(source, id, key)
  if source == 'queue' then
    call('ZREM', FOREIGN_QUEUE, key)
  elseif source == 'stream' then
    drop_entries(STREAM, {id})
  else
    call('XDEL', FOREIGN, id)
  end
end

-- Deletes the other program's records of the task, and nothing of docket: a user's key may be any
-- text.
local function forget(key)
  local stored_key = redis.pcall('HGET', P .. key, 'key')
  if stored_key == key then call('DEL', P .. key) end
  local state = redis.pcall('HGET', P .. 'runs:' .. key, 'state')
  if type(state) == 'string' then call('DEL', P .. 'runs:' .. key, P .. 'progress:' .. key) end
end

local function import_task(source, id, key, due, name, call_bytes, attempt, stored)
  if not exists(source, id, key) then return 0 end
  local payload = stored == 1 and named_payload(call_bytes)
  if call('HEXISTS', TASKS, key) == 1 then
    if payload then free_payload(payload) end
    return 2
  end
  if payload and not adopt_payload(payload) then return 3 end
  remove(source, id, key)
  forget(key)
  local head = call('GETRANGE', RUNS .. segment(key), 0, FINISHED_PEEK)
  local finished_before = finished_generation(head)
  if finished_before > 0 then forget_payloads(key, head) end
  local task = {flags = payload and APART or 0, attempt = attempt, losses = 0, generation = finished_before + 1, submission = first_submission,
    due = due, entry_ms = 0, entry_seq = 0, name = name, call = call_bytes}
  to_stream_or_schedule(key, task, now)
  call('HSET', TASKS, key, pack_task(task))
  call('DEL', RUNS .. segment(key))
  publish(key, waiting_event(task))
  return 1
end

ensure_groups()
local answer = {}
for i, item in ipairs(cmsgpack.unpack(ARGV[2])) do answer[i] = import_task(unpack(item)) end
return answer
