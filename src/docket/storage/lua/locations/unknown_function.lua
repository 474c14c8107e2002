-- Tasks that wait for a worker that knows their function.
-- uses: keys, unknown_functions, listing
local function leave_unknown_function(key, task)
  call('ZREM', UNKNOWN_TASKS .. segment(task.name), key)
  forget_if_none_wait(task.name)
end

local function is_reachable_unknown_function(key, task)
  return call('ZSCORE', UNKNOWN_TASKS .. segment(task.name), key)
end

local MOST_COUNTED_FUNCTIONS = 1000

local function count_unknown_function()
  local count = 0
  for i, name in ipairs(call('HKEYS', UNKNOWN_SINCE)) do
    if i > MOST_COUNTED_FUNCTIONS then break end
    count = count + call('ZCARD', UNKNOWN_TASKS .. segment(name))
  end
  return count
end

-- A cursor is the position of the last task of a function, and the name of the function.
local function list_unknown_function(_, page)
  local last_score, last_name = string.match(page.cursor, '^(%S+) (.*)$')
  local names = call('HKEYS', UNKNOWN_SINCE)
  table.sort(names)
  for _, one in ipairs(names) do
    if (not last_name or one >= last_name) and (not page.name or one == page.name) then
      local low = one == last_name and '(' .. last_score or '-inf'
      local left = page.most - #page.keys
      local found = call('ZRANGE', UNKNOWN_TASKS .. segment(one), low, '+inf', 'BYSCORE', 'LIMIT', 0, left, 'WITHSCORES')
      for i = 1, #found, 2 do
        page.keys[#page.keys + 1] = found[i]
        page.positions[#page.keys] = exact_number(tonumber(found[i + 1])) .. ' ' .. one
      end
      if #page.keys >= page.most then
        page.following = page.positions[#page.keys]
        return
      end
    end
  end
end

local function explain_unknown_function(key, task, why)
  why.note('unknown_since', call('HGET', UNKNOWN_SINCE, task.name) or false)
  why.note('before', call('ZRANK', UNKNOWN_TASKS .. segment(task.name), key) or 0)
end
