-- Tasks that are ready, or whose run will end soon: the two streams.
-- uses: keys, records, entries, placement, listing
local function leave_ready(_, task)
  drop_entries(stream_of_task(task), {entry_id(task)})
end

-- A worker can reach an entry that exists and is either undelivered or pending with a consumer.
local function is_reachable_ready(_, task, last_ids)
  local stream, id = stream_of_task(task), entry_id(task)
  if not id or #call('XRANGE', stream, id, id) == 0 then return false end
  last_ids[stream] = last_ids[stream] or last_delivered(stream)
  local last = last_ids[stream]
  if not last or is_after(task, last) then return true end
  return #call('XPENDING', stream, GROUP, id, id, 1) > 0
end

local function list_ready(at, page)
  read_page(page, at == IN_FRONT and FRONT or STREAM)
end

-- Bounds of the tasks that are counted, and of what is read for that.
local MOST_BEFORE, MOST_ENTRIES_READ, MOST_BYTES_READ, PAGE = 1000, 2000, 4194304, 100

-- Whether this is the record of a task that waits at that entry. It reads only the header: records
-- may be large, and there may be a thousand of them.
local function is_live(record, place, id)
  if #record < TASK_HEADER_SIZE then return true end
  local $TASK_HEADER(location, entry_ms = ms, entry_seq = seq) = struct.unpack(TASK_HEADER, record)
  return location == place and id == string.format('%.0f-%.0f', ms, seq)
end

-- Counts the tasks that are ready and come before this one. An entry counts if it is live and its
-- task does not run.
local function count_entries(so_far, stream, after, last)
  local from, place = '(' .. after, stream == FRONT and IN_FRONT or IN_STREAM
  while not so_far.is_more do
    local page = call('XRANGE', stream, from, last, 'COUNT', PAGE)
    if #page == 0 then return end
    local keys = {}
    for i, entry in ipairs(page) do keys[i] = entry_key(entry[2]) or '' end
    local tasks, runs = call('HMGET', TASKS, unpack(keys)), call('HMGET', RUNNING, unpack(keys))
    for i, entry in ipairs(page) do
      if tasks[i] and not runs[i] and is_live(tasks[i], place, entry[1]) then
        if so_far.before == MOST_BEFORE then so_far.is_more = true else so_far.before = so_far.before + 1 end
      end
      so_far.bytes = so_far.bytes + (tasks[i] and #tasks[i] or 0)
    end
    so_far.entries = so_far.entries + #page
    if #page < PAGE then return end
    so_far.is_more = so_far.is_more or so_far.entries >= MOST_ENTRIES_READ or so_far.bytes >= MOST_BYTES_READ
    from = '(' .. page[#page][1]
  end
end

local function explain_delivery(stream, id, why)
  local pending = redis.pcall('XPENDING', stream, GROUP, id, id, 1)
  if pending.err and not string.find(pending.err, 'NOGROUP', 1, true) then return why.note('delivery', {'', 0, 1}) end
  local found = not pending.err and pending[1]
  if found then why.note('delivery', {found[2], found[3], why.is_valid(call('ZSCORE', LEASES, found[2])) and 1 or 0}) end
end

local function explain_ready(_, task, why)
  local stream, id = stream_of_task(task), entry_id(task)
  if not id or #call('XRANGE', stream, id, id) == 0 then return end
  local last = last_delivered(stream) or '0-0'
  if not is_after(task, last) then return explain_delivery(stream, id, why) end
  local so_far = {before = 0, entries = 0, bytes = 0, is_more = false}
  if stream == STREAM then count_entries(so_far, FRONT, last_delivered(FRONT) or '0-0', '+') end
  count_entries(so_far, stream, last, '(' .. id)
  why.note('before', so_far.before)
  why.note('is_more', so_far.is_more and 1 or 0)
end
