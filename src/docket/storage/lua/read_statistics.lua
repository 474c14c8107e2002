-- Reads the counts of some minutes or hours. An hour is answered together with its minutes that are
-- not folded yet.
-- ARGV[2]: msgpack {unit ('m' or 'h'), number of the first one, number of the last one, function or
--   false for all, most rows}.
-- Returns: server ms, number of the next minute or hour to read or -1, then per hash that has any:
--   number of its minute or hour, list of fields and rows.
-- uses: keys, statistics
local unit, first, last, name, most = unpack(cmsgpack.unpack(ARGV[2]))
local answer, rows = {(server_ms()), -1}, 0

-- The counts of one function and of the others, in the form of HGETALL.
local function read_function(hash)
  local field, found = function_field(name), {}
  local read = call('HMGET', hash, field, OTHERS)
  if read[1] and field ~= OTHERS then found = {field, read[1]} end
  if read[2] then found[#found + 1], found[#found + 2] = OTHERS, read[2] end
  return found
end

local function read_hash(number, hash)
  local found = name and read_function(hash) or call('HGETALL', hash)
  if #found > 0 then
    answer[#answer + 1], answer[#answer + 2] = number, found
    rows = rows + #found / 2
  end
end

for number = first, last do
  if rows >= most then
    answer[2] = number
    break
  end
  if unit == 'm' then
    read_hash(number, STATS_MINUTE .. string.format('%.0f', number))
  else
    read_hash(number, STATS_HOUR .. string.format('%.0f', number))
    local begin = number * HOUR_MINUTES
    for _, minute in ipairs(call('ZRANGE', STATS_OPEN, begin, begin + HOUR_MINUTES - 1, 'BYSCORE')) do
      read_hash(number, STATS_MINUTE .. minute)
    end
  end
end
return answer
