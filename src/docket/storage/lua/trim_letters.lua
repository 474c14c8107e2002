-- Deletes dead letters that have ended or are too many, a bounded number per call, and takes over
-- letters of the release before.
-- ARGV[2]: msgpack {most letters, most bytes, ms to keep a letter that is taken over}.
-- Returns: number of letters that have ended, number of letters that were dropped since the last
--   answer that said so, letters, whether there is more to do (0/1).
-- uses: keys, records, letters
local ENDED_AT_ONCE, OLD_AT_ONCE, DEATHS_AT_ONCE = 200, 20, 50
local most, most_bytes, age = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local now = server_ms()
local more = 0

local function drop_ended()
  local ids = call('ZRANGEBYSCORE', LETTER_ENDS, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)
  if #ids == 0 then return 0 end
  drop_letters(ids, call('HMGET', LETTER_RECORDS, unpack(ids)))
  call('HINCRBY', LETTER_COUNTS, 'expired', #ids)
  if #ids == ENDED_AT_ONCE then more = 1 end
  return #ids
end

-- Old letters do not push out others: they stay where they are.
local function has_room(size)
  local bytes = number_in(call('HGET', LETTER_COUNTS, 'bytes'), 0)
  return call('ZCARD', LETTERS) < most and bytes + 2 * size + 200 <= most_bytes
end

-- The release before kept buried tasks by key, and nothing else.
local function take_over()
  local old = call('ZRANGE', DEAD, 0, OLD_AT_ONCE - 1, 'WITHSCORES')
  for i = 1, #old, 2 do
    local key, record = old[i], call('HGET', DEAD_RECORDS, old[i])
    local task_bytes = record and finished_task(record) or ''
    if task_bytes ~= '' then
      local $FINISHED_HEADER(epoch, started, task_size = size) = struct.unpack(FINISHED_HEADER, record)
      local progress_at = FINISHED_HEADER_SIZE + size + 1
      local tail = #record >= progress_at + 3
        and string.sub(record, progress_at + 4 + struct.unpack('<I4', record, progress_at)) or ''
      if not has_room(#record + apart_size(task_bytes) + LETTER_HEADER_SIZE + #key) then return end
      local text = string.match(tail, '%a[%w_.]*: [^%z\1-\8]+') or ''
      local id = add_letter({reason = BURIED_LETTER, flags = 0, deaths = 1, edits = 0, died = tonumber(old[i + 1]), ends = now + age,
        epoch = epoch, started = started, key = key, error = string.match(text, '^([%w_.]+)') or '', place = '', arguments = '',
        text = text, traceback = '', task = task_bytes, rest = ''}, most, most_bytes)
      mark_buried_chain(key, id, text)
    end
    call('ZREM', DEAD, key)
    call('HDEL', DEAD_RECORDS, key)
  end
  if #old == OLD_AT_ONCE * 2 then more = 1 end
end

-- A worker of the release before leaves the entry of a retried task.
local function forget_old_deaths()
  local state = call('HGET', SWEEP_CURSOR, 'deaths') or '0'
  local page = call('HSCAN', DEATHS, state, 'COUNT', DEATHS_AT_ONCE)
  for i = 1, #page[2], 2 do
    if call('HEXISTS', TASKS, page[2][i]) == 0 then call('HDEL', DEATHS, page[2][i]) end
  end
  if page[1] == '0' then call('HDEL', SWEEP_CURSOR, 'deaths') else call('HSET', SWEEP_CURSOR, 'deaths', page[1]) end
end

if age > 0 and call('EXISTS', DEAD) == 1 then take_over() end
if call('EXISTS', DEATHS) == 1 then forget_old_deaths() end
local ended = drop_ended()
if not make_room(0, 0, most, most_bytes, true) then more = 1 end
local counts = call('HMGET', LETTER_COUNTS, 'dropped', 'warned')
local dropped, warned = number_in(counts[1], 0), number_in(counts[2], 0)
if dropped ~= warned then call('HSET', LETTER_COUNTS, 'warned', dropped) end
return {ended, math.max(dropped - warned, 0), call('ZCARD', LETTERS), more}
