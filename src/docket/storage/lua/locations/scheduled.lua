-- The schedule: tasks that are not due.
-- uses: keys, listing
local function leave_scheduled(key)
  call('ZREM', SCHEDULE, key)
end

local function is_reachable_scheduled(key)
  return call('ZSCORE', SCHEDULE, key)
end

local function count_scheduled()
  return call('ZCARD', SCHEDULE)
end

-- A cursor is the due time and the key of the last task that was read.
local function list_scheduled(_, page)
  local low = page.from and exact_number(page.from) or '-inf'
  local last_due, last_key = string.match(page.cursor, '^(%S+) (.*)$')
  local rank
  if last_due then
    local score = call('ZSCORE', SCHEDULE, last_key)
    rank = score and tonumber(score) == tonumber(last_due) and call('ZRANK', SCHEDULE, last_key) + 1
      or call('ZCOUNT', SCHEDULE, '-inf', '(' .. last_due)
  else
    rank = call('ZCOUNT', SCHEDULE, '-inf', '(' .. low)
  end
  local found = call('ZRANGE', SCHEDULE, rank, rank + page.most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    if page.before and tonumber(found[i + 1]) >= page.before then return end
    page.keys[#page.keys + 1] = found[i]
    page.positions[#page.keys] = exact_number(tonumber(found[i + 1])) .. ' ' .. found[i]
  end
  if #page.keys == page.most then page.following = page.positions[#page.keys] end
end

local function explain_scheduled(key, _, why)
  local at = call('ZSCORE', SCHEDULE, key)
  if not at then return end
  why.note('at', why.time_of(at))
  why.note('delay', call('GET', DELAYS .. segment(key)) or false)
  if tonumber(at) <= why.now then
    why.note('before', call('ZRANK', SCHEDULE, key))
    why.note('leader', call('HGET', FLEET, 'leader') or false)
  end
end
