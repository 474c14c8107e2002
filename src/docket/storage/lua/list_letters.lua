-- Lists a page of dead letters, in the order of their ids. The page ends after so many letters, or
-- when so many bytes were read.
-- ARGV[2]: msgpack {list of kinds, or false for all
--   letters; whether the newest come first; id after
--   which to begin, or false; least id, greatest id; most letters to read; filter or false; whether
--   to answer with the letters (else only their ids)}. A filter is {function, error class, text,
--   key, key prefix, from ms, before ms, argument}; false for each that is not given.
-- Returns: id after which the next page begins, or false at the end; then per letter: id, and its
--   bytes if they were asked for.
-- uses: keys, letters
local MOST_BYTES, MOST_READ, READ_AT_ONCE = 262144, 1048576, 50
local kinds, newest_first, after, least, greatest, most, filter, whole = unpack(cmsgpack.unpack(ARGV[2]))
local find, sub, bytes_read, bytes_found = string.find, string.sub, 0, 0
local function_name, error, text, key, prefix, from, before, argument
if filter then function_name, error, text, key, prefix, from, before, argument = unpack(filter) end

local function read_source(source)
  if newest_first then
    return call('ZREVRANGEBYSCORE', source, after and '(' .. after or greatest, least, 'LIMIT', 0, most)
  end
  return call('ZRANGEBYSCORE', source, after and '(' .. after or least, greatest, 'LIMIT', 0, most)
end

local function read_key()
  local low, high = '[' .. key_member(key, letter_id(least)), '[' .. key_member(key, letter_id(greatest))
  if after and newest_first then high = '(' .. key_member(key, after) elseif after then low = '(' .. key_member(key, after) end
  local members
  if newest_first then
    members = call('ZREVRANGEBYLEX', LETTER_KEYS, high, low, 'LIMIT', 0, most)
  else
    members = call('ZRANGEBYLEX', LETTER_KEYS, low, high, 'LIMIT', 0, most)
  end
  for i, member in ipairs(members) do members[i] = sub(member, -#letter_id(0)) end
  return members
end

local ids = {}
if key then
  ids = read_key()
elseif not kinds then
  ids = read_source(LETTERS)
else
  for _, kind in ipairs(kinds) do
    for _, id in ipairs(read_source(LETTER_KIND .. kind)) do ids[#ids + 1] = id end
  end
  if #kinds > 1 then
    -- Each source gave its first letters, so the first ones of all are among them.
    if newest_first then table.sort(ids, function(a, b) return a > b end) else table.sort(ids) end
    for i = #ids, most + 1, -1 do ids[i] = nil end
  end
end

-- Whether a text of the letter is this one, or, for a class, ends with a dot and this one.
local function is_class(bytes, l)
  local class = letter_text(bytes, l, 'error')
  return class == error or sub(class, -#error - 1) == '.' .. error
end

local function contains(bytes, at, size, wanted)
  local found = find(bytes, wanted, at, true)
  return found and found + #wanted <= at + size
end

local function has_text(bytes, l)
  return contains(bytes, l.text_at, l.text_size, text)
    or l.flags % 2 < SEALED_TRACEBACK and contains(bytes, l.traceback_at, l.traceback_size, text)
end

local function has_name(bytes, l)
  if l.task_size < TASK_HEADER_SIZE then return function_name == '' end
  local length = struct.unpack('<H', bytes, l.task_at + TASK_HEADER_SIZE - 2)
  local at = l.task_at + TASK_HEADER_SIZE
  return sub(bytes, at, at + length - 1) == function_name
end

local function matches(bytes)
  -- Most letters have the text nowhere, and need not be read further.
  local rare = text or argument
  if rare and not find(bytes, rare, 1, true) then return false end
  local l = unpack_letter(bytes)
  if not l then return false end
  if key and letter_text(bytes, l, 'key') ~= key then return false end
  if prefix and (l.key_size < #prefix or sub(bytes, l.key_at, l.key_at + #prefix - 1) ~= prefix) then return false end
  if from and l.died < from or before and l.died >= before then return false end
  if function_name and not has_name(bytes, l) then return false end
  if error and not is_class(bytes, l) then return false end
  if argument and not contains(bytes, l.arguments_at, l.arguments_size, argument) then return false end
  return not text or has_text(bytes, l)
end

local answer, last = {false}, nil
if filter or whole then
  for at = 1, #ids, READ_AT_ONCE do
    local records = call('HMGET', LETTER_RECORDS, unpack(ids, at, math.min(at + READ_AT_ONCE - 1, #ids)))
    for i, bytes in ipairs(records) do
      last = ids[at + i - 1]
      bytes_read = bytes_read + (bytes and #bytes or 0)
      if bytes and (not filter or matches(bytes)) then
        answer[#answer + 1] = last
        if whole then answer[#answer + 1], bytes_found = bytes, bytes_found + #bytes end
      end
    end
    if bytes_found > MOST_BYTES or bytes_read > MOST_READ then break end
  end
else
  for i, id in ipairs(ids) do answer[i + 1] = id end
  last = ids[#ids]
end
local ended = #ids < most and last == ids[#ids]
if last and not ended then answer[1] = last end
return answer
