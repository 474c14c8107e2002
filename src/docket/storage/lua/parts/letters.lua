-- Dead letters (docs/design/dead-letters.md). storage/letters.py reads the same bytes; a test
-- compares the two.
-- uses: keys, records, payloads

-- The header of a letter, and where its texts begin (counted from 1). Nil for bytes that are not a
-- letter.
local function unpack_letter(bytes)
  if #bytes < LETTER_HEADER_SIZE then return nil end
  local l = {}
  $LETTER_HEADER(l.*) = struct.unpack(LETTER_HEADER, bytes)
  l.kind_at = LETTER_HEADER_SIZE + 1
  l.key_at = l.kind_at + l.kind_size
  l.error_at = l.key_at + l.key_size
  l.place_at = l.error_at + l.error_size
  l.arguments_at = l.place_at + l.place_size
  l.text_at = l.arguments_at + l.arguments_size
  l.traceback_at = l.text_at + l.text_size
  l.task_at = l.traceback_at + l.traceback_size
  l.rest_at = l.task_at + l.task_size
  if l.rest_at > #bytes + 1 or l.size ~= l.size then return nil end
  return l
end

local function letter_text(bytes, l, name)
  return string.sub(bytes, l[name .. '_at'], l[name .. '_at'] + l[name .. '_size'] - 1)
end

-- `l` has the fields of the header except the sizes, and the texts by name.
local function pack_letter(l)
  return struct.pack($LETTER_HEADER{l.*, version = 1}) .. l.kind .. l.key .. l.error .. l.place .. l.arguments .. l.text .. l.traceback .. l.task .. l.rest
end

local function letter_id(number)
  return string.format('%016.0f', number)
end

-- A member of the letters by key. A key may contain NULs: they are escaped, so that no letter of
-- another key comes between those of a key.
local function key_member(key, id)
  return string.gsub(key, '%z', '\0\1') .. '\0\0' .. id
end

-- The id of the newest letter of a key, or nil.
local function newest_letter(key)
  local found = call('ZREVRANGEBYLEX', LETTER_KEYS, '(' .. key_member(key, ':'), '[' .. key_member(key, ''), 'LIMIT', 0, 1)[1]
  return found and string.sub(found, -#letter_id(0))
end

-- The size of the payload that a task record names.
local function apart_size(task_bytes)
  if not payload_of(task_bytes) then return 0 end
  local reference = unpack_task(task_bytes).call
  return #reference > 4 and struct.unpack('<I4', reference) or 0
end

-- Kinds of one function with all texts, and without the place; kinds of all functions.
local MOST_KINDS, MOST_CLASSES, MOST_KINDS_OF_ALL = 100, 150, 2000

-- The kind of a letter: its id, its function, its error class and its place. If there are too many
-- kinds, a new letter joins a coarser one.
local function kind_of(name, error, place)
  local function id_of()
    return string.sub(redis.sha1hex(#name .. ':' .. name .. #error .. ':' .. error .. place), 1, 16)
  end
  local id = id_of()
  if call('HEXISTS', LETTER_KINDS, id) == 1 then return id, name, error, place end
  local kinds = number_in(call('HGET', LETTER_COUNTS, 'kinds of ' .. name), 0)
  if kinds >= MOST_KINDS then place = '' end
  if kinds >= MOST_CLASSES then error = '' end
  if call('HLEN', LETTER_KINDS) >= MOST_KINDS_OF_ALL then name, error, place = '', '', '' end
  return id_of(), name, error, place
end

local function count_kinds(name, number)
  local field = 'kinds of ' .. name
  if call('HINCRBY', LETTER_COUNTS, field, number) <= 0 then call('HDEL', LETTER_COUNTS, field) end
end

-- Adds letters to the entry of a kind, or takes some away.
local function change_kind(id, bytes, died, name, error, place)
  local stored = call('HGET', LETTER_KINDS, id)
  local count = call('ZCARD', LETTER_KIND .. id)
  local known, kind = false, nil
  if stored then known, kind = pcall(cmsgpack.unpack, stored) end
  if not known or type(kind) ~= 'table' then kind = {name or '', error or '', place or '', 0, 0, died or 0, died or 0} end
  if count == 0 then
    if stored then count_kinds(kind[1], -1) end
    return call('HDEL', LETTER_KINDS, id)
  end
  if not stored then count_kinds(kind[1], 1) end
  kind[4], kind[5] = count, math.max((tonumber(kind[5]) or 0) + bytes, 0)
  if died then kind[7] = died end
  call('HSET', LETTER_KINDS, id, cmsgpack.pack(kind))
end

-- Deletes letters from all indexes. `records` are their bytes, `heads` their headers, if the caller
-- has read them. Their payloads stay.
local function remove_letters(ids, records, heads)
  if #ids == 0 then return end
  local members, kinds, total = {}, {}, 0
  for i, bytes in ipairs(records) do
    local l = heads and heads[i] or bytes and unpack_letter(bytes)
    if l then
      members[#members + 1] = key_member(letter_text(bytes, l, 'key'), ids[i])
      local kind = letter_text(bytes, l, 'kind')
      kinds[kind] = kinds[kind] or {ids = {}, bytes = 0}
      table.insert(kinds[kind].ids, ids[i])
      kinds[kind].bytes = kinds[kind].bytes + l.size
      total = total + l.size
    end
  end
  call('ZREM', LETTERS, unpack(ids))
  call('ZREM', LETTER_ENDS, unpack(ids))
  call('HDEL', LETTER_RECORDS, unpack(ids))
  if #members > 0 then call('ZREM', LETTER_KEYS, unpack(members)) end
  for kind, removed in pairs(kinds) do
    call('ZREM', LETTER_KIND .. kind, unpack(removed.ids))
    change_kind(kind, -removed.bytes)
  end
  call('HINCRBY', LETTER_COUNTS, 'bytes', string.format('%.0f', -total))
  -- Somebody may have damaged letters, which then do not say how large they were.
  if call('ZCARD', LETTERS) == 0 then call('HSET', LETTER_COUNTS, 'bytes', '0') end
end

local function letter_payload(bytes)
  local l = unpack_letter(bytes)
  return l and payload_of(letter_text(bytes, l, 'task'))
end

-- Deletes letters with their payloads. The server frees the memory of large payloads later.
local function drop_letters(ids, records)
  for _, bytes in ipairs(records) do
    local payload = bytes and letter_payload(bytes)
    if payload then free_payload(payload) end
  end
  remove_letters(ids, records)
end

-- One call of a script drops at most this many letters, and a letter at most this many others.
local MOST_DROPPED, MOST_DROPPED_FOR_ONE = 1000, 200
local AT_ONCE = 20

-- Drops the oldest letters, so that `added` letters of `size` bytes fit. If they would not fit even
-- then, drops nothing, unless the caller wants a part of it. Returns whether they fit.
local function make_room(added, size, most, most_bytes, partly)
  if size > most_bytes or added > most then return false end
  local count, total = call('ZCARD', LETTERS), number_in(call('HGET', LETTER_COUNTS, 'bytes'), 0)
  local left = math.min(MOST_DROPPED_FOR_ONE, MOST_DROPPED - (ARGV.dropped or 0))
  local ids, records = {}, {}
  while count + added > most or total + size > most_bytes do
    local page = left > 0 and call('ZRANGE', LETTERS, #ids, #ids + math.min(AT_ONCE, left) - 1) or {}
    if #page == 0 then
      if not partly then return false end
      break
    end
    for i, bytes in ipairs(call('HMGET', LETTER_RECORDS, unpack(page))) do
      if count + added <= most and total + size <= most_bytes then break end
      local l = bytes and unpack_letter(bytes)
      ids[#ids + 1], records[#records + 1] = page[i], bytes
      count, total, left = count - 1, total - (l and l.size or 0), left - 1
    end
  end
  if #ids > 0 then
    drop_letters(ids, records)
    ARGV.dropped = (ARGV.dropped or 0) + #ids
    call('HINCRBY', LETTER_COUNTS, 'dropped', #ids)
  end
  return count + added <= most and total + size <= most_bytes
end

-- Ids grow with the server's time, so that they are not given again if the server has lost letters.
local function next_letter()
  local _, now_us = real_ms()
  local number = math.max(number_in(call('HGET', LETTER_COUNTS, 'id'), 0) + 1, now_us)
  call('HSET', LETTER_COUNTS, 'id', string.format('%.0f', number))
  return number
end

-- Writes a letter and returns its id; nil if it does not fit. `l` is as for pack_letter, without
-- kind and size.
local function add_letter(l, most, most_bytes)
  local name = unpack_task(l.task).name
  local kind, kind_name, kind_error, kind_place = kind_of(name, l.error, l.place)
  l.kind, l.size = kind, 0
  l.size = #pack_letter(l) + apart_size(l.task)
  if not make_room(1, l.size, most, most_bytes) then
    call('HINCRBY', LETTER_COUNTS, 'dropped', 1)
    return nil
  end
  local number = next_letter()
  local id = letter_id(number)
  call('HSET', LETTER_RECORDS, id, pack_letter(l))
  call('ZADD', LETTERS, number, id)
  call('ZADD', LETTER_ENDS, l.ends, id)
  call('ZADD', LETTER_KEYS, 0, key_member(l.key, id))
  call('ZADD', LETTER_KIND .. kind, number, id)
  call('HINCRBY', LETTER_COUNTS, 'bytes', string.format('%.0f', l.size))
  change_kind(kind, l.size, l.died, kind_name, kind_error, kind_place)
  return id
end

-- How often the task has failed for good before.
local function deaths_of(key, task_bytes)
  if not is_revived(flags_of(task_bytes)) then return 0 end
  return math.min(number_in(string.match(call('HGET', DEATHS, key) or '', '^(%d+)'), 0), 2 ^ 32 - 2)
end

-- The chain of an automatic task is over until an operator retries it. The mark of a cancelled
-- chain stops workers of the release before. `id` is nil if the letter is not kept.
local function mark_buried_chain(key, id, text)
  if call('SISMEMBER', AUTOMATIC, key) == 1 then
    local now = string.format('%.0f', (real_ms()))
    call('HSET', BURIED_CHAINS, key, now .. ' ' .. (id or '-') .. ' ' .. text)
    call('HSET', CANCELLED_CHAINS, key, now)
  end
end

-- Keeps a task that has failed for good. `letter` is {reason, ms to keep,
-- most letters, most bytes, flags, error class, place, arguments, text,
-- traceback, rest} (ledger/letters.py). Returns whether it is kept.
local function keep_letter(key, now, record, task_bytes, letter)
  local $LetterFields(*) = unpack(letter)
  local id = nil
  if age > 0 then
    local $FINISHED_HEADER(epoch, started) = struct.unpack(FINISHED_HEADER, record)
    id = add_letter({reason = reason, flags = flags, deaths = deaths_of(key, task_bytes) + (reason == NOT_RUN_LETTER and 0 or 1), edits = 0, died = now,
      ends = now + age, epoch = epoch, started = started, key = key, error = error, place = place, arguments = arguments,
      text = text, traceback = traceback, task = task_bytes, rest = rest}, most, most_bytes)
  end
  if reason ~= FAILED_LETTER and reason ~= NOT_RUN_LETTER then mark_buried_chain(key, id, text) end
  return id ~= nil
end

-- How to keep a task of this function: the function may declare for how long.
local function letter_for(name, letter)
  local age = call('HGET', KEEP_FAILURES, name)
  if not age then return letter end
  local own = {unpack(letter)}
  own[$LetterFields.age] = number_in(age, letter[$LetterFields.age])
  return own
end
