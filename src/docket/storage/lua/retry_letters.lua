-- Makes tasks of dead letters. Each letter moves as a whole: it is a letter or a task.
-- ARGV[2]: msgpack {id of the batch, number of the
--   step, list of {letter id, due ms, or 0 for now}}.
-- Returns: per letter: 1 retried, 0 there is no such
--   letter, 2 its key has an unfinished task, 3 its
--   payload is gone, 4 its record is damaged. A repeated step gets the answer of the first one.
-- uses: keys, records, payloads, letters, placement, batches
local ADDED, GONE, TAKEN, PAYLOAD_GONE, DAMAGED = 1, 0, 2, 3, 4
local batch, step, items = unpack(cmsgpack.unpack(ARGV[2]))
local before = answer_of(batch, step)
if before then return before end
local now, now_us = server_ms()
local submission = (KEYS[2] and select(2, real_ms()) or now_us) % 2 ^ 32
if call('EXISTS', STREAM) == 0 then
  --- parts
  ensure_groups()
end

local ids = {}
for i, item in ipairs(items) do ids[i] = item[1] end
local records = call('HMGET', LETTER_RECORDS, unpack(ids))
local answer, taken, heads, keys, key_at = {}, {}, {}, {}, {}
local moved_ids, moved_keys, moved, moved_heads, fields, deaths, finished = {}, {}, {}, {}, {}, {}, {}
for i, bytes in ipairs(records) do
  heads[i] = bytes and unpack_letter(bytes)
  if heads[i] then
    keys[#keys + 1] = letter_text(bytes, heads[i], 'key')
    key_at[i] = keys[#keys]
  end
end
if #keys > 0 then
  for i, task in ipairs(call('HMGET', TASKS, unpack(keys))) do
    if task then taken[keys[i]] = true end
  end
end

local function generation_of(key, task)
  local head = call('GETRANGE', RUNS .. segment(key), 0, FINISHED_PEEK)
  local last = finished_generation(head)
  if last > 0 then
    --- parts
    forget_payloads(key, head)
    finished[#finished + 1] = RUNS .. segment(key)
  end
  return math.max(last, task.generation) + 1
end

local function retry(id, bytes, l, key, due)
  if not bytes then return GONE end
  if not l then return DAMAGED end
  local task_bytes = letter_text(bytes, l, 'task')
  if taken[key] then return TAKEN end
  local task, payload = unpack_task(task_bytes), payload_of(task_bytes)
  if task.broken then return DAMAGED end
  if payload and not adopt_payload(payload) then return PAYLOAD_GONE end
  task.flags, task.attempt, task.submission = (payload and APART or 0) + REVIVED, 1, submission
  -- A task that took its workers down remains a suspect, so that it runs alone.
  task.losses = l.reason == BURIED_LETTER and SUSPECT_AFTER or 0
  task.generation = generation_of(key, task)
  task.due = due > 0 and due or now
  to_stream_or_schedule(key, task, now)
  taken[key] = true
  local n = #moved_ids + 1
  moved_ids[n], moved_keys[n], moved[n], moved_heads[n] = id, key, bytes, l
  fields[#fields + 1], fields[#fields + 2] = key, pack_task(task)
  deaths[#deaths + 1], deaths[#deaths + 2] = key, string.format('%d ', l.deaths) .. id
  publish(key, waiting_event(task))
  return ADDED
end

for i, item in ipairs(items) do answer[i] = retry(item[1], records[i], heads[i], key_at[i], item[2]) end
if #fields > 0 then
  call('HSET', TASKS, unpack(fields))
  call('HSET', DEATHS, unpack(deaths))
  revive_chains(moved_keys)
  remove_letters(moved_ids, moved, moved_heads)
  if #finished > 0 then call('DEL', unpack(finished)) end
end
keep_answer(batch, step, answer)
return answer
