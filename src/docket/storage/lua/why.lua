-- Finds out why a task does not run (docs/design/why.md). It only reads.
-- ARGV[2]: msgpack {key}.
-- Returns: server ms, task record without its call, run record, finished record; false for each
--   that does not exist; then pairs: the name of a fact, and the fact.
-- uses: keys, records, entries, foreign, failed_attempts, placement, fleet, limit_slots, holds, removal, suspects, letters, statistics
local key = unpack(cmsgpack.unpack(ARGV[2]))
local MOST_BEFORE, MOST_ENTRIES, MOST_BYTES, PAGE = 1000, 2000, 4194304, 100
local MOST_RUNS, MOST_RUN_BYTES, MOST_HOLDERS, MOST_MEMBERS = 5000, 1048576, 20, 10000
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

-- Whether this is the record of a task that waits at that entry. It reads only the header: records
-- may be large, and there may be a thousand of them.
local function is_live(record, place, id)
  if #record < TASK_HEADER_SIZE then return true end
  local _, location, _, _, _, _, _, _, ms, seq = struct.unpack(TASK_HEADER, record)
  return location == place and id == string.format('%.0f-%.0f', ms, seq)
end

-- Counts the tasks that are ready and come before this one. An entry counts if it is live and its
-- task does not run.
local before, entries_read, bytes_read, is_more = 0, 0, 0, false
local function count_entries(stream, after, last)
  local from, place = '(' .. after, stream == FRONT and IN_FRONT or IN_STREAM
  while not is_more do
    local page = call('XRANGE', stream, from, last, 'COUNT', PAGE)
    if #page == 0 then return end
    local keys = {}
    for i, entry in ipairs(page) do keys[i] = entry_key(entry[2]) or '' end
    local tasks, runs = call('HMGET', TASKS, unpack(keys)), call('HMGET', RUNNING, unpack(keys))
    for i, entry in ipairs(page) do
      if tasks[i] and not runs[i] and is_live(tasks[i], place, entry[1]) then
        if before == MOST_BEFORE then is_more = true else before = before + 1 end
      end
      bytes_read = bytes_read + (tasks[i] and #tasks[i] or 0)
    end
    entries_read = entries_read + #page
    if #page < PAGE then return end
    is_more = is_more or entries_read >= MOST_ENTRIES or bytes_read >= MOST_BYTES
    from = '(' .. page[#page][1]
  end
end

local function note_delivery(stream, id)
  local pending = redis.pcall('XPENDING', stream, GROUP, id, id, 1)
  if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return note('delivery', {'', 0, 1}) end
  local found = not pending.err and pending[1]
  if found then note('delivery', {found[2], found[3], is_valid(call('ZSCORE', LEASES, found[2])) and 1 or 0}) end
end

local function note_entry(task)
  local stream, id = stream_of_task(task), entry_id(task)
  if not id or #call('XRANGE', stream, id, id) == 0 then return end
  local last = last_delivered(stream) or '0-0'
  if not is_after(task, last) then return note_delivery(stream, id) end
  if stream == STREAM then count_entries(FRONT, last_delivered(FRONT) or '0-0', '+') end
  count_entries(stream, last, '(' .. id)
  note('before', before)
  note('is_more', is_more and 1 or 0)
end

-- The runs of these epochs, as far as they are found: epoch → {key, worker}.
local function runs_of(epochs, wanted)
  local found, cursor, read, size = {}, '0', 0, 0
  repeat
    local page = call('HSCAN', RUNNING, cursor, 'COUNT', 500)
    cursor = page[1]
    for i = 1, #page[2], 2 do
      local run = unpack_run(page[2][i + 1])
      local epoch = run and string.format('%.0f', run.epoch)
      size = size + #page[2][i + 1]
      if epoch and epochs[epoch] and not found[epoch] then
        found[epoch] = {page[2][i], run.worker}
        wanted = wanted - 1
      end
    end
    read = read + #page[2] / 2
  until cursor == '0' or read >= MOST_RUNS or size >= MOST_RUN_BYTES or wanted <= 0
  return found
end

-- Who holds slots of a limit, the runs that hold theirs longest first: {key or '', worker or '',
-- epoch or '0'}.
local function holders_of(limit)
  local epochs, reserved, wanted, count = {}, {}, {}, 0
  for _, holder in ipairs(call('SMEMBERS', SLOTS .. limit)) do
    local rest = string.sub(holder, 2)
    if string.sub(holder, 1, 1) == 'w' then reserved[#reserved + 1] = {rest, '', '0'} else epochs[#epochs + 1] = rest end
  end
  table.sort(epochs, function(a, b) return (tonumber(a) or 0) < (tonumber(b) or 0) end)
  local holders = {}
  for i = 1, math.min(#epochs, MOST_HOLDERS) do
    wanted[epochs[i]] = true
    count = count + 1
  end
  local found = count > 0 and runs_of(wanted, count) or {}
  for i = 1, count do
    local epoch = epochs[i]
    local replaced = not found[epoch] and call('HGET', REPLACED_RUNS, epoch)
    local run = replaced and unpack_run(replaced)
    local run_of = found[epoch] or {'', run and run.worker or ''}
    holders[#holders + 1] = {run_of[1], run_of[2], epoch}
  end
  for i = 1, math.min(#reserved, MOST_HOLDERS - count) do holders[#holders + 1] = reserved[i] end
  return holders
end

-- The rows of the statistics of a function: those of the last half hour, or of this hour and the
-- last one. Somebody else may have written to their keys.
local function note_run_times(name)
  local RECENT_MINUTES = 30
  local rows, field, minute = {}, function_field(name), math.floor(now / MINUTE_MS)
  local function read(keys, number)
    local row = redis.pcall('HGET', keys .. string.format('%.0f', number), field)
    if type(row) == 'string' then rows[#rows + 1] = row end
  end
  if field == OTHERS then return end
  for number = minute - RECENT_MINUTES, minute do read(STATS_MINUTE, number) end
  if #rows == 0 then
    local hour = math.floor(minute / HOUR_MINUTES)
    for number = hour - 1, hour do read(STATS_HOUR, number) end
  end
  note('run_times', rows)
end

local function note_limit()
  local limits = parked_limits(key)
  local limit = limits[#limits]
  if not limit then return end
  note('limit', {limit, number_in(call('HGET', LIMITS, limit), 0), call('SCARD', SLOTS .. limit),
    call('ZCARD', WAITERS .. limit), call('ZRANK', WAITERS .. limit, key) or false, holders_of(limit)})
end

local function note_schedule()
  local at = call('ZSCORE', SCHEDULE, key)
  if not at then return end
  note('at', time_of(at))
  note('delay', call('GET', DELAYS .. segment(key)) or false)
  if tonumber(at) <= now then
    note('before', call('ZRANK', SCHEDULE, key))
    note('leader', call('HGET', FLEET, 'leader') or false)
  end
end

local function note_suspect()
  local met = call('HGET', SUSPECTS, 'm' .. key)
  local group = call('HGET', SUSPECTS, 't' .. key)
  note('suspect', {met or '', (group_numbers(group or ''))})
end

local function note_unknown_function(task)
  note('unknown_since', call('HGET', UNKNOWN_SINCE, task.name) or false)
  note('before', call('ZRANK', UNKNOWN_TASKS .. segment(task.name), key) or 0)
end

local function note_hold(task)
  local rule = call('HGET', HELD_BY, key)
  local set = HELD_TASKS .. segment(rule or '')
  local place, stored = rule and call('ZRANK', set, held_member(key, task)), rule and call('HGET', PAUSES, rule)
  if place and stored then note('hold', {rule, stored, call('ZCARD', set), place}) end
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
  if task.location == SCHEDULED then
    note_schedule()
  elseif task.location == WAITING_FOR_SLOT then
    note_limit()
    note_run_times(task.name)
  elseif task.location == UNKNOWN_FUNCTION then
    note_unknown_function(task)
  elseif task.location == HELD then
    return note_hold(task)
  elseif task.location == IN_STREAM or task.location == IN_FRONT then
    note_entry(task)
  end
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
