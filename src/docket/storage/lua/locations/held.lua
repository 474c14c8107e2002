-- Tasks that a pause holds.
-- uses: keys, holds, listing
local function leave_held(key, task)
  local rule = call('HGET', HELD_BY, key)
  if not rule then return end
  call('HDEL', HELD_BY, key)
  call('ZREM', HELD_TASKS .. segment(rule), held_member(key, task))
end

-- Whether a rule still holds the task.
local function is_reachable_held(key, task)
  local rule = call('HGET', HELD_BY, key)
  return rule and is_holding(call('HGET', PAUSES, rule), false) and call('ZSCORE', HELD_TASKS .. segment(rule), held_member(key, task))
end

local function count_held()
  return call('HLEN', HELD_BY)
end

local function list_held(_, page)
  scan_page(page, HELD_BY)
end

local function explain_held(key, task, why)
  local rule = call('HGET', HELD_BY, key)
  local set = HELD_TASKS .. segment(rule or '')
  local place, stored = rule and call('ZRANK', set, held_member(key, task)), rule and call('HGET', PAUSES, rule)
  if place and stored then why.note('hold', {rule, stored, call('ZCARD', set), place}) end
end
