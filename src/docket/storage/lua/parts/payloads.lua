-- Calls and results that are stored apart from their records (docs/design/payloads.md).
-- uses: keys, records

local function named_payload(reference)
  return PAYLOADS .. string.sub(reference, 5)
end

-- The payload that a task record names, or nil.
local function payload_of(bytes)
  if flags_of(bytes) % 2 == 0 then return nil end
  local task = unpack_task(bytes)
  return task.flags % 2 == 1 and named_payload(task.call) or nil
end

local function result_payload(epoch)
  return PAYLOADS .. 'r' .. string.format('%.0f', epoch)
end

-- The server needs about a millisecond to free a string of four megabytes, with any command. A
-- script frees a few, and lets the others expire within seconds.
local FREED_AT_ONCE = 8388608

-- Different payloads get different times: the server frees all payloads that expire together at
-- once.
local function spread_ms(payload, most)
  return (tonumber(string.sub(payload, -6), 16) or 0) % most
end

local function free_payload(payload)
  -- Counted in ARGV, because every block that needs this function gets a copy of its own.
  ARGV.freed = (ARGV.freed or 0) + call('STRLEN', payload)
  if ARGV.freed <= FREED_AT_ONCE then call('UNLINK', payload) else call('PEXPIRE', payload, 500 + spread_ms(payload, 4500)) end
end

-- Makes a payload, which its producer has stored, the task's own. False if the payload has expired:
-- the producer must store it again.
local function adopt_payload(payload)
  if call('EXISTS', payload) == 0 then return false end
  call('PERSIST', payload)
  return true
end

-- Frees the payload of a record that is about to be overwritten or deleted, unless it is `needed`.
local function drop_payload(bytes, needed)
  local payload = payload_of(bytes)
  if payload and payload ~= needed then free_payload(payload) end
end

-- The task has ended without a letter: its payload expires with its finished record.
local function end_payload(bytes, ttl)
  local payload = payload_of(bytes)
  if not payload then return end
  if ttl > 0 then call('PEXPIRE', payload, ttl + spread_ms(payload, 30000)) else free_payload(payload) end
end

-- A result outlives its record by this time, since a reader may be fetching it.
local READING_MS = 15000

-- Frees the payloads of a finished record that is about to be deleted. `head` has the first bytes
-- of the record.
local function forget_payloads(key, head)
  if string.byte(head, FINISHED_STATE_AT) >= RESULT_APART then
    call('PEXPIRE', result_payload((struct.unpack('<d', head, FINISHED_EPOCH_AT))), READING_MS)
  end
  if string.byte(head, FINISHED_HEADER_SIZE + TASK_FLAGS_AT) % 2 == 1 then
    local payload = payload_of(finished_task(call('GET', RUNS .. segment(key))))
    -- A payload without a time to live belongs to a dead letter or to an unfinished task.
    if payload and call('PTTL', payload) >= 0 then free_payload(payload) end
  end
end
