-- Counts scheduled tasks by time and function. The counts by time are exact. The functions are
-- those of some tasks of each bucket, which are spread evenly over it.
-- ARGV[2]: msgpack {begin of the first bucket (server ms), ms of a bucket, number of buckets, most
--   tasks to read in each}.
-- Returns: per bucket: number of tasks, number of tasks that were read, list of function names and
--   numbers.
-- uses: keys
local begin, length, buckets, most = unpack(cmsgpack.unpack(ARGV[2]))
local LONGEST_NAME = 1000

local function number(value) return string.format('%.17g', value) end

-- The name of the function in a task record.
local function function_of(bytes)
  if #bytes < TASK_HEADER_SIZE then return '' end
  local size = struct.unpack('<H', bytes, TASK_HEADER_SIZE - 1)
  return string.sub(bytes, TASK_HEADER_SIZE + 1, TASK_HEADER_SIZE + math.min(size, LONGEST_NAME))
end

-- One task of each of `most` equal parts, at a place that differs from part to part: tasks often
-- come in regular patterns.
local SPREAD = 0.618034

local function keys_of(rank, count)
  if count <= most then return call('ZRANGE', SCHEDULE, rank, rank + count - 1) end
  local keys = {}
  for i = 1, most do
    local at = rank + math.floor((i - 1 + i * SPREAD % 1) * count / most)
    keys[#keys + 1] = call('ZRANGE', SCHEDULE, at, at)[1]
  end
  return keys
end

local answer = {}
local rank = call('ZCOUNT', SCHEDULE, '-inf', '(' .. number(begin))
for i = 1, buckets do
  local from = begin + (i - 1) * length
  local count = call('ZCOUNT', SCHEDULE, number(from), '(' .. number(from + length))
  local names, read, row = {}, 0, {}
  local keys = count > 0 and keys_of(rank, count) or {}
  for first = 1, #keys, 50 do
    for _, bytes in ipairs(call('HMGET', TASKS, unpack(keys, first, math.min(first + 49, #keys)))) do
      if bytes then
        local name = function_of(bytes)
        names[name], read = (names[name] or 0) + 1, read + 1
      end
    end
  end
  for name, of_it in pairs(names) do
    row[#row + 1] = name
    row[#row + 1] = of_it
  end
  answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = count, read, row
  rank = rank + count
end
return answer
