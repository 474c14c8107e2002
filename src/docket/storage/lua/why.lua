-- Finds out why a task does not run (docs/design/why.md). It only reads.
-- ARGV[2]: msgpack {key}.
-- Returns: server ms, task record without its call, run record, finished record; false for each
--   that does not exist; then pairs: the name of a fact, and the fact.
-- uses: keys, records, foreign, failed_attempts, fleet, holds, removal, suspects, letters, locations
local key = unpack(cmsgpack.unpack(ARGV[2]))
local MOST_MEMBERS = 10000
local ENVELOPE_HEADER_SIZE = 3
local now, real_now = server_ms(), real_ms()
local bytes = call('HGET', TASKS, key)
local run_bytes = call('HGET', RUNNING, key)
local answer = {now, false, run_bytes or false, false}

local function note(name, fact)
  answer[#answer + 1] = name
  answer[#answer + 1] = fact
end

local function time_of(score) return score and string.format('%.3f', score) or false end

-- In a grace no worker counts as dead, although its lease has ended.
local grace_until = tonumber(call('ZSCORE', LEASES, GRACE) or GRACE_AT) - GRACE_AT
local in_grace = is_grace(real_now, grace_until)

local function is_valid(ends) return ends and (in_grace or tonumber(ends) > real_now) end

-- The workers of a set that are alive. It reads 10,000 members at most.
local function live_ones(set)
  local found = {}
  for i, worker in ipairs(call('SMEMBERS', set)) do
    if i > MOST_MEMBERS then break end
    if is_valid(call('ZSCORE', LEASES, worker)) then found[#found + 1] = worker end
  end
  return found
end

local function note_workers(name)
  local from = in_grace and AFTER_MARKS or '(' .. string.format('%.0f', real_now)
  local live, all = call('ZCOUNT', LEASES, from, '+inf'), call('ZCOUNT', LEASES, AFTER_MARKS, '+inf')
  local reclaim_due = call('ZSCORE', LEASES, RECLAIM_DUE)
  if is_valid(reclaim_due) then live = live - 1 end
  local stops, knowing = {}, 0
  local stopping = live_ones(STOPPING)
  for _, worker in ipairs(stopping) do stops[worker] = true end
  for _, worker in ipairs(live_ones(TASK_WORKERS .. segment(name))) do
    if not stops[worker] then knowing = knowing + 1 end
  end
  note('workers', live - #stopping)
  note('stopping', #stopping)
  note('knowing', knowing)
  note('running', call('HLEN', RUNNING))
  local alone = call('HGETALL', ALONE_WORKERS)
  if alone[1] then note('alone', {#alone / 2, alone[2]}) end
  local lapsed = all - live - (reclaim_due and not is_valid(reclaim_due) and 1 or 0)
  if live == 0 and lapsed > 0 then
    note('lapsed', {lapsed, time_of(call('ZSCORE', LEASES, RENEWED) - RENEWED_AT)})
  elseif live <= #stopping then
    local gone = call('ZRANGE', LOST, -1, -1, 'WITHSCORES')
    if gone[2] then note('gone', {gone[1], gone[2]}) end
  end
end

local function note_suspect()
  local met = call('HGET', SUSPECTS, 'm' .. key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  note('suspect', {met or '', (group_numbers(group or ''))})
end

-- The function of a rule that compares an argument; nil if the rule is about all functions. Python
-- packs the rule as a pair of bytes, which cmsgpack does not know.
local function compared_function(stored)
  local _, last = string.find(stored, '^[^ ]* ')
  local _, kind, first, second = string.byte(stored, (last or #stored) + 1, (last or #stored) + 4)
  if kind == 196 and first then return string.sub(stored, last + 4, last + 3 + first) end
  if kind == 197 and second then return string.sub(stored, last + 5, last + 4 + first * 256 + second) end
end

-- The pauses that hold the task when a worker claims it, or may hold it because of an argument.
local function note_pauses(task)
  if call('EXISTS', PAUSES) == 0 then return end
  local comparing = 0
  for _, rule in ipairs((all_rules())) do
    local id, stored = rule[1], rule[2]
    if id == FUNCTION .. task.name or id == WHOLE_DOCKET then
      note('pause', {id, stored, call('ZCARD', HELD_TASKS .. segment(id))})
    elseif string.sub(id, 1, 1) ~= FUNCTION then
      local name = compared_function(stored)
      if not name or name == task.name then comparing = comparing + 1 end
    end
  end
  if comparing > 0 then note('comparing_pauses', comparing) end
end

local function note_failed_attempts(task)
  if not was_retried(task.flags) then return end
  local stored = redis.pcall('GET', FAILED_ATTEMPTS .. segment(key))
  if type(stored) == 'string' then note('failed_attempts', stored) end
end

local function note_waiting(task)
  note_workers(task.name)
  if losses_of(task) >= SUSPECT_AFTER then note_suspect() end
  explain_location(key, task, {note = note, now = now, time_of = time_of, is_valid = is_valid})
  if task.location == HELD then return end
  if not is_unknown_location(task) then note_pauses(task) end
end

local function note_run()
  local run = unpack_run(run_bytes)
  if not run then return end
  local ends = call('ZSCORE', is_manual(run.worker) and MANUAL_LEASES or LEASES, run.worker)
  note('lease', time_of(ends))
  note('is_alive', is_valid(ends) and 1 or 0)
end

-- Only Python reads calls. The header of the envelope, which follows the trace context, says which
-- release wrote the call. It is empty if the payload is missing.
local function without_call(task)
  local is_apart = task.flags % 2 == 1 and #task.call > 4
  local payload = is_apart and PAYLOADS .. string.sub(task.call, 5)
  local length = is_apart and call('GETRANGE', payload, 0, 1) or string.sub(task.call, 1, 2)
  local at = #length == 2 and 2 + struct.unpack('<H', length) or 0
  local last = at + ENVELOPE_HEADER_SIZE
  note('envelope', is_apart and call('GETRANGE', payload, at, last - 1) or string.sub(task.call, at + 1, last))
  note('size', is_apart and struct.unpack('<I4', task.call) or #task.call)
  if not is_apart then task.call = '' end
  return pack_task(task)
end

if not bytes then
  note('chain_cancelled', call('HGET', CANCELLED_CHAINS, key) or false)
  note('settings', call('HGETALL', SETTINGS))
  local foreign = redis.pcall('ZSCORE', FOREIGN_QUEUE, key)
  if type(foreign) == 'string' then note('foreign', foreign) end
  answer[4] = call('GET', RUNS .. segment(key)) or false
  -- The server may not permit a user with the rules of an older release to find the letter.
  local is_permitted, id = pcall(newest_letter, key)
  local buried = call('HGET', BURIED_CHAINS, key)
  if is_permitted and id then note('letter', call('HGET', LETTER_RECORDS, id) or '') end
  if buried then note('buried', buried) end
  return answer
end
local task = unpack_task(bytes)
if task.broken then note('is_broken', 1) end
if run_bytes then note_run() else note_waiting(task) end
note_failed_attempts(task)
answer[2] = without_call(task)
return answer
