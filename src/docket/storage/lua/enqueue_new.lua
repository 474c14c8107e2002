-- Schedules a batch of calls whose keys docket has made up and not sent before, so no key has a
-- task. This is the script of bulk scheduling; `enqueue` schedules all other calls.
-- ARGV[2]: msgpack list, three values per call: the key; the due ms, negative if the task is due
--   now even if the caller's clock is fast; the end of the task record, from the length of the
--   function's name on.
-- Returns: server ms. A call whose due time is not later is in the stream, any other in the
--   schedule.
-- uses: keys, records, placement, direct_delivery
local calls = cmsgpack.unpack(ARGV[2])
local now, now_us = server_ms()
-- As in `enqueue`: the number of a task's first submission.
local submission = (KEYS[2] and select(2, real_ms()) or now_us) % 2 ^ 32

-- A client may create the group at '$', so the group must exist before the first entry.
if call('EXISTS', STREAM) == 0 then
  --- parts
  ensure_groups()
end

local pack, sub = struct.pack, string.sub
local fields, at, ready = {}, 0, 0
-- The milliseconds of the last entry as text with the hyphen, and its id as numbers.
local beginning, ms, seq = '', 0, 0
for i = 1, #calls, 3 do
  local key, due = calls[i], calls[i + 1]
  local location, entry_ms, entry_seq = SCHEDULED, 0, 0
  if due < 0 then due = math.min(-due, now) end
  if due <= now then
    local id = call('XADD', STREAM, '*', 'k', key)
    if seq > 0 and sub(id, 1, #beginning) == beginning then
      -- Only this script adds entries now, so the numbers follow each other.
      seq = seq + 1
    else
      local ms_text, seq_text = string.match(id, '^(%d+)-(%d+)$')
      beginning, ms, seq = ms_text .. '-', tonumber(ms_text), tonumber(seq_text)
    end
    location, entry_ms, entry_seq, ready = IN_STREAM, ms, seq, ready + 1
  else
    wait_for_time(key, due)
  end
  fields[at + 1], fields[at + 2] = key, pack(NEW_TASK, 1, location, 0, 1, 0, 1, submission, due, entry_ms, entry_seq) .. calls[i + 2]
  at = at + 2
end

call('HSET', TASKS, unpack(fields))
try_direct_delivery(ready, #ARGV[2], fields, nil, now, now_us)
return now
