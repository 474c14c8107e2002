-- Lists a page of the rate limits, cooldowns and debounces in effect, those that end last first. It
-- only reads.
-- ARGV[2]: msgpack {number of limits before, number
--   of limits to read, most runs and tasks to name}.
-- Returns: server ms, number of all limits, then per
--   limit: its numbers and key, until when it is in
--   effect, number of runs in its window, number of waiting tasks, list of runs (submission, time),
--   list of waiting tasks (key, until when, function).
-- uses: keys, records
local before, count, most = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local since = '(' .. string.format('%.0f', now)
local page = call('ZREVRANGEBYSCORE', WINDOWS, '+inf', since, 'WITHSCORES', 'LIMIT', before, count)
local answer = {now, call('ZCOUNT', WINDOWS, since, '+inf')}

local function function_of(key)
  local bytes = call('HGET', TASKS, key)
  return bytes and unpack_task(bytes).name or ''
end

local function read_rate(limit, per)
  local waiters = P .. 'rate-waiters:=' .. string.sub(limit, #'rate:=' + 1)
  local from = '(' .. string.format('%.0f', now - per)
  local runs, rows = {}, {}
  local begun = call('ZREVRANGEBYSCORE', P .. limit, '+inf', from, 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #begun, 2 do runs[#runs + 1] = {begun[i], begun[i + 1]} end
  local first = call('ZRANGEBYSCORE', waiters, from, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for i = 1, #first, 2 do
    local name = function_of(first[i])
    if name ~= '' then rows[#rows + 1] = {first[i], first[i + 1], name} end
  end
  return call('ZCOUNT', P .. limit, from, '+inf'), #rows < most and #rows or call('ZCARD', waiters), runs, rows
end

local function read_cooldown(limit, window_ms)
  local closes, _, submission = string.match(call('GET', P .. limit) or '', '^(%d+) (%d+) (.*)$')
  local left = number_in(closes, now) - now
  if left <= 0 or left > window_ms then return 0, 0, {}, {} end
  return 1, 0, {{submission, string.format('%.0f', closes - window_ms)}}, {}
end

local function read_debounce(limit)
  local found = call('HMGET', P .. limit, 'leader', 'due')
  local key = string.match(found[1] or '', '^%d+ %d+ (.*)$')
  local name = key and function_of(key) or ''
  if name == '' then return 0, 0, {}, {} end
  return 0, 1, {}, {{key, string.format('%.0f', number_in(found[2], now)), name}}
end

local READERS = {rate = read_rate, cooldown = read_cooldown, debounce = read_debounce}
for i = 1, #page, 2 do
  local ms, limit = string.match(page[i], '^%d+ (%d+) (.*)$')
  local read = limit and READERS[string.match(limit, '^(%a+):=')]
  if read then
    -- Somebody else may have written to the key of the limit.
    local is_read, in_use, waiting, runs, rows = pcall(read, limit, tonumber(ms))
    if is_read and in_use + waiting > 0 then
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3] = page[i], page[i + 1], in_use
      answer[n + 4], answer[n + 5], answer[n + 6] = waiting, runs, rows
    end
  end
end
return answer
