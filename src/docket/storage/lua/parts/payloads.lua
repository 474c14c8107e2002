-- Calls and results that are stored apart from their records (docs/design/payloads.md).
-- uses: keys, records

-- A flag of task records: the call part is the size (4 bytes) and the id of a payload.
local APART = 1
-- Added to the state of a finished record: its result is a payload that is named after the epoch.
local RESULT_APART = 128

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

-- Freeing a string takes the server about a millisecond for four megabytes, whatever the command. A
-- script frees a few, and leaves the rest to expire within seconds.
local FREED_AT_ONCE = 8388608

-- Never the same for two payloads: what expires together is freed together.
local function spread_ms(payload, most)
  return (tonumber(string.sub(payload, -6), 16) or 0) % most
end

local function free_payload(payload)
  -- Counted in a table of the call, since every block that needs this function has its own.
  ARGV.freed = (ARGV.freed or 0) + call('STRLEN', payload)
  if ARGV.freed <= FREED_AT_ONCE then call('UNLINK', payload) else call('PEXPIRE', payload, 500 + spread_ms(payload, 4500)) end
end

-- A task takes over the payload that its producer has
-- stored. False if it is gone: it has to be stored again.
local function adopt_payload(payload)
  if call('EXISTS', payload) == 0 then return false end
  call('PERSIST', payload)
  return true
end

-- The record is written anew or forgotten: its payload
-- goes, unless it is the one that is still needed.
local function drop_payload(bytes, needed)
  local payload = payload_of(bytes)
  if payload and payload ~= needed then free_payload(payload) end
end

local function letter_payload(key)
  local letter = call('HGET', DEAD_RECORDS, key)
  return letter and payload_of(finished_task(letter))
end

-- The task has ended: its payload lives as long as its finished record. A dead letter, which is
-- written before, keeps it.
local function end_payload(key, bytes, ttl)
  local payload = payload_of(bytes)
  if not payload or payload == letter_payload(key) then return end
  if ttl > 0 then call('PEXPIRE', payload, ttl + spread_ms(payload, 30000)) else free_payload(payload) end
end

-- For so long a result outlives its record: somebody may be fetching it.
local READING_MS = 15000

-- A finished record is about to be deleted: so is whatever it names. `head` has its first bytes.
local function forget_payloads(key, head)
  if string.byte(head, FINISHED_STATE_AT) >= RESULT_APART then
    call('PEXPIRE', result_payload((struct.unpack('<d', head, FINISHED_EPOCH_AT))), READING_MS)
  end
  if string.byte(head, FINISHED_HEADER_SIZE + TASK_FLAGS_AT) % 2 == 1 then
    drop_payload(finished_task(call('GET', RUNS .. segment(key))), letter_payload(key))
  end
end
