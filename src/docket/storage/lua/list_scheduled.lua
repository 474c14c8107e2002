-- Lists a page of scheduled tasks in the order of their due times.
-- ARGV[2]: msgpack {key and due time of the last task of the page before, or false twice, number of
--   tasks to read, with calls (0/1), filter (parts/filters.lua)}.
-- Returns: key and due time of the last task read, or false twice at the end; then per task the
--   same as list_unfinished.
-- uses: keys, filters
local last_key, last_due, count, with_calls, filter = unpack(cmsgpack.unpack(ARGV[2]))

local function number(value) return string.format('%.17g', value) end

-- The rank after the last task, or the rank that this task had if it has left the schedule.
local function first_rank()
  local from = call('ZCOUNT', SCHEDULE, '-inf', '(' .. number(filter[4]))
  if not last_key then return from end
  local score = call('ZSCORE', SCHEDULE, last_key)
  if score and tonumber(score) == last_due then return call('ZRANK', SCHEDULE, last_key) + 1 end
  return math.max(from, call('ZCOUNT', SCHEDULE, '-inf', '(' .. number(last_due)))
end

local rank = first_rank()
local page = call('ZRANGE', SCHEDULE, rank, rank + count - 1, 'WITHSCORES')
local keys, last = {}, nil
for i = 1, #page, 2 do
  if tonumber(page[i + 1]) >= filter[5] then break end
  last = {page[i], tonumber(page[i + 1])}
  keys[#keys + 1] = page[i]
end
local at_end = #keys < count
local answer = {not at_end and last[1] or false, not at_end and number(last[2]) or false}
for first = 1, #keys, 500 do
  local tasks = call('HMGET', TASKS, unpack(keys, first, math.min(first + 499, #keys)))
  for i, bytes in ipairs(tasks) do
    local key = keys[first + i - 1]
    if has_prefix(key, filter) then add_if_matching(answer, filter, with_calls == 1, key, bytes, false) end
  end
end
return answer
