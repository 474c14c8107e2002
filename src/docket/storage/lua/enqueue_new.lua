-- Schedules a batch of calls whose keys docket has generated and not sent before, so no key has a
-- task. This is the script of bulk scheduling; `enqueue` schedules all other calls.
-- ARGV[2]: msgpack list, four values per call: the key; the due ms, negative if the task is due now
--   even if the caller's clock is fast; the end of the task record, from the length of the
--   function's name on; the last 12 bytes of the UUID that is the key.
-- Returns: server ms. A call whose due time is not later is in the stream, any other in the
--   schedule. If repeats of calls were stored before: a list of the server ms and the positions,
--   from 0, of these calls, for which the script has stored nothing.
-- uses: keys, entries, placement, repeats, direct_delivery
local calls = cmsgpack.unpack(ARGV[2])
local now, now_us = server_ms()
-- As in `enqueue`: the number of a task's first submission.
local submission = (KEYS[2] and select(2, real_ms()) or now_us) % 2 ^ 32

-- 2 for the stream, and 1 for the notes of repeats, as in `enqueue`.
local existing = call('EXISTS', STREAM, STREAM, REPEATED)
-- A client may create the group at '$', so the group must exist before the first entry.
if existing < 2 then
  --- parts
  ensure_groups()
end
-- The answer if some calls were stored before. These are taken out of the list.
local answer
if existing % 2 == 1 then
  --- parts
  local keys, others = {}, {}
  for i = 1, #calls, 4 do keys[#keys + 1] = calls[i] end
  local stored_before = noted_repeats(keys)
  for i = 1, #calls, 4 do
    if stored_before[calls[i]] then
      answer = answer or {now}
      answer[#answer + 1] = (i - 1) / 4
    else
      local n = #others
      others[n + 1], others[n + 2], others[n + 3], others[n + 4] = calls[i], calls[i + 1], calls[i + 2], calls[i + 3]
    end
  end
  calls = others
  if #calls == 0 then return answer end
end

local pack, find = struct.pack, string.find
local fields, at, ready = {}, 0, 0
-- The field of the last entry, and the beginning of the keys that it is for.
local field, key_start = nil, '-'
-- The milliseconds of the last entry as text with the hyphen, and its id as numbers.
local beginning, ms, seq = '', 0, 0
-- How the records of the tasks in the stream begin, up to the due time.
local start = pack($NEW_TASK{location = IN_STREAM, attempt = 1, submission = submission})
-- bulk calls, twin of: new keys (enqueue.lua)
for i = 1, #calls, 4 do
  local key, due, record_end = calls[i], calls[i + 1], calls[i + 2]
  if due < 0 then due = math.min(-due, now) end
  local record
  if due <= now then
    if find(key, key_start, 1, true) ~= 1 then
      key_start = string.sub(key, 1, SHORT_FIELD_SIZE - 1)
      field = SHORT .. key_start
    end
    local id = call('XADD', STREAM, '*', field, calls[i + 3])
    if seq > 0 and find(id, beginning, 1, true) == 1 then
      -- Only this script adds entries now, so the numbers follow each other.
      seq = seq + 1
    else
      local ms_text, seq_text = string.match(id, '^(%d+)-(%d+)$')
      beginning, ms, seq = ms_text .. '-', tonumber(ms_text), tonumber(seq_text)
    end
    record, ready = start .. pack($TASK_PLACE{due = due, entry_ms = ms, entry_seq = seq}) .. record_end, ready + 1
  else
    wait_for_time(key, due)
    record = pack($NEW_TASK{location = SCHEDULED, attempt = 1, submission = submission}) .. pack($TASK_PLACE{due = due, entry_ms = 0, entry_seq = 0}) .. record_end
  end
  fields[at + 1], fields[at + 2] = key, record
  at = at + 2
end

call('HSET', TASKS, unpack(fields))
try_direct_delivery(ready, #ARGV[2], fields, nil, now, now_us)
return answer or now
