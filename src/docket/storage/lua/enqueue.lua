-- Schedules a batch of calls. A call that is due goes to the stream, any other call to the
-- schedule. The script may deliver ready tasks directly.
-- ARGV[2]: msgpack list of {key, due ms (0 = now), mode, function name, call, attempt, and for
--     a generated key the last 12 bytes of its UUID}.
--   mode bits: 1 the key is new, so the script need not read it; 2 replace; 4 due now, even if the
--     caller's clock is fast; 8 the call is the reference to a stored payload; 16 the caller sent
--     this call before and got no answer: a task of that key, even a finished one, is this call and
--     counts as scheduled; 32 a worker seeds an automatic task: skip it if its chain was cancelled;
--     64 docket generated the key, and an earlier request with it may still arrive.
-- Returns: server ms, then per call: 1 scheduled, 2 scheduled as a replacement, 0 the key has a
--   task already, 3 the payload is missing (the script changed nothing); generation, due ms,
--   location.
-- uses: keys, records, entries, payloads, placement, endings, repeats, direct_delivery
local band = bit.band
local calls = cmsgpack.unpack(ARGV[2])
local now, now_us = server_ms()
-- The number of a task's first submission. A key that is added again after its record has expired
-- gets another number.
local first_submission = (KEYS[2] and select(2, real_ms()) or now_us) % 2 ^ 32

-- 2 for the stream, and 1 for the notes of repeats: one command asks for both.
local existing = call('EXISTS', STREAM, STREAM, REPEATED)
-- A client may create the group at '$', so the group must exist before the first entry.
if existing < 2 then
  --- parts
  ensure_groups()
end
-- The keys of calls that another request of the same call has stored before.
local stored_before = {}
if existing % 2 == 1 then
  --- parts
  local generated = {}
  for _, c in ipairs(calls) do
    if band(c[3], FRESH + UNANSWERED) ~= 0 then generated[#generated + 1] = c[1] end
  end
  stored_before = noted_repeats(generated)
end

local known, read_keys, finished, repeats = {}, {}, {}, {}
for _, c in ipairs(calls) do
  if band(c[3], FRESH) == 0 or stored_before[c[1]] then read_keys[#read_keys + 1] = c[1] end
end
if #read_keys > 0 then
  local found = call('HMGET', TASKS, unpack(read_keys))
  for i, key in ipairs(read_keys) do known[key] = found[i] or nil end
end

local replace
local function make_replace()
  --- parts
  return replace_task
end

local answer, fields, index_of, ready = {now}, {}, {}, 0

-- Schedules a call whose key may have a task: an unfinished or a finished one, or one from this
-- batch.
-- twin of: new keys (enqueue.lua)
local function write_any(c)
  --- parts
  local key, due, mode = c[$NewCall.key], c[$NewCall.due], c[$NewCall.mode]
  local before = known[key] and unpack_task(known[key])
  local payload = band(mode, STORED) ~= 0 and named_payload(c[5])
  if before and (band(mode, REPLACE) == 0 or stored_before[key] or is_unknown_location(before)) then
    -- The payload may belong to the task: a caller repeats a call whose answer was lost.
    if payload and payload ~= payload_of(known[key]) then free_payload(payload) end
    return band(mode, UNANSWERED) ~= 0 and 1 or 0, before.generation, before.due, before.location
  end
  -- The chain was cancelled after the worker had asked whether to seed it.
  if band(mode, SEED) ~= 0 and call('HEXISTS', CANCELLED_CHAINS, key) == 1 then return 0, 1, due, SCHEDULED end
  local head = not before and call('GETRANGE', RUNS .. segment(key), 0, FINISHED_PEEK)
  local finished_before = head and finished_generation(head) or 0
  -- The call has ended, and its record may have expired.
  if stored_before[key] or (finished_before > 0 and band(mode, UNANSWERED) ~= 0) then
    return band(mode, UNANSWERED) ~= 0 and 1 or 0, math.max(finished_before, 1), due, IN_STREAM
  end
  if payload and not adopt_payload(payload) then return 3, 0, 0, 0 end
  if due <= 0 or (band(mode, NOW) ~= 0 and due > now) then due = now end
  local task = {flags = payload and APART or 0, attempt = c[6], losses = 0, generation = 1, submission = first_submission, due = due, entry_ms = 0, entry_seq = 0,
    name = c[4], call = c[5]}
  if before then
    task.generation = before.generation + 1
    replace = replace or make_replace()
    -- Read again: an earlier call of this batch may have woken the task.
    replace(key, known[key], index_of[key] and before or unpack_task(call('HGET', TASKS, key)), payload)
  else
    task.generation = finished_before + 1
    if finished_before > 0 then forget_payloads(key, head) end
  end
  to_stream_or_schedule(key, task, now)
  if task.location == IN_STREAM then ready = ready + 1 end
  known[key] = pack_task(task)
  local at = index_of[key] or #fields + 1
  index_of[key], fields[at], fields[at + 1] = at, key, known[key]
  finished[#finished + 1] = RUNS .. segment(key)
  publish(key, waiting_event(task))
  return before and 2 or 1, task.generation, task.due, task.location
end

for _, c in ipairs(calls) do
  local n, due, mode = #answer, c[$NewCall.due], c[$NewCall.mode]
  if band(mode, FRESH + STORED) ~= FRESH or known[c[1]] or stored_before[c[1]] then
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = write_any(c)
    if band(mode, REPEAT) ~= 0 and answer[n + 1] ~= 3 then repeats[#repeats + 1] = c[1] end
  else
    -- new keys, twin of: write_any (enqueue.lua)
    -- new keys, twin of: bulk calls (enqueue_new.lua)
    local key, name = c[1], c[4]
    local location, ms, seq = SCHEDULED, 0, 0
    if due <= 0 or (band(mode, NOW) ~= 0 and due > now) then due = now end
    if due <= now then
      location, ready = IN_STREAM, ready + 1
      local field = c[7] and SHORT .. string.sub(key, 1, SHORT_FIELD_SIZE - 1) or 'k'
      ms, seq = string.match(call('XADD', STREAM, '*', field, c[7] or key), '^(%d+)-(%d+)$')
    else
      wait_for_time(key, due)
    end
    local at = #fields + 1
    local bytes = struct.pack($TASK_HEADER{location = location, attempt = c[$NewCall.attempt], submission = first_submission, due = due, entry_ms = ms, entry_seq = seq, name_length = #name}) .. name .. c[5]
    known[key], index_of[key], fields[at], fields[at + 1] = bytes, at, key, bytes
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = 1, 1, due, location
  end
end

if #fields > 0 then call('HSET', TASKS, unpack(fields)) end
if #finished > 0 then call('DEL', unpack(finished)) end
if #repeats > 0 then
  --- parts
  note_repeats(repeats)
end
try_direct_delivery(ready, #ARGV[2], fields, index_of, now, now_us)
return answer
