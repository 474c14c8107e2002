-- Tasks that a pause holds (docs/design/pause.md). A rule is stored as a letter, the epoch at which
-- it was stored, a space, and the rule as Python wrote it.
-- uses: keys, records, placement, proofs
local PAUSED, RESUMING = 'p', 'r'
-- The rule for the whole docket, and the first letter of a rule for one function. Any other id is
-- of a rule that compares an argument.
local WHOLE_DOCKET, FUNCTION = '*', '='
-- Fields beside the rules: the version of those that compare arguments, and how many times tasks
-- began to go on since the first pause.
local ARGUMENTS, ROUND = 'arguments', 'round'

-- Whether a rule, or false, holds a task. What somebody else has written there holds nothing. While
-- a rule is being resumed, the tasks that it let go are on the front stream, and matching tasks of
-- the other stream wait behind them.
local function is_holding(rule, from_front)
  local state = rule and string.sub(rule, 1, 1)
  return state == PAUSED or state == RESUMING and not from_front
end

-- The id of the rule that holds tasks of this function, or nil. `rules` has the rules that were
-- read before.
local function holding_rule(name, from_front, rules)
  for _, id in ipairs({FUNCTION .. name, WHOLE_DOCKET}) do
    if rules[id] == nil then rules[id] = call('HGET', PAUSES, id) end
    if is_holding(rules[id], from_front) then return id end
  end
end

-- Tasks of the front stream go before all others, and those that already went on before the other
-- tasks of the front stream: every round has positions below those of the rounds before it.
local FRONT_FIRST, ROUND_SIZE, MOST_ROUNDS = 2 ^ 50, 2 ^ 43, 800

local function rounds_so_far()
  return math.min(math.max(number_in(call('HGET', PAUSES, ROUND), 0), 0), MOST_ROUNDS)
end

local function front_position(ms)
  return ms - FRONT_FIRST - rounds_so_far() * ROUND_SIZE
end

local function held_member(key, task)
  return string.format('%010.0f', task.entry_seq) .. key
end

-- Holds a task that was delivered. The id of its entry stays in the record, as its position. The
-- caller deletes the entry and writes the record.
local function to_held(key, task, rule, from_front)
  task.location = HELD
  local position = from_front and front_position(task.entry_ms) or task.entry_ms
  call('ZADD', HELD_TASKS .. segment(rule), string.format('%.0f', position), held_member(key, task))
  call('HSET', HELD_BY, key, rule)
end

-- All rules: a list of {id, stored rule}, and their bytes.
local function all_rules()
  local found, rules, size = call('HGETALL', PAUSES), {}, 0
  for i = 1, #found, 2 do
    if found[i] ~= ARGUMENTS and found[i] ~= ROUND then
      rules[#rules + 1] = {found[i], found[i + 1]}
      size = size + #found[i] + #found[i + 1]
    end
  end
  return rules, size
end

-- The rules have changed: writes the version that claims report, and tells all workers. The version
-- is a hash of the rules, so that no two sets of rules have the same one, also after a fail-over.
local function rules_changed()
  local rules, comparing = all_rules(), {}
  for _, rule in ipairs(rules) do
    if rule[1] ~= WHOLE_DOCKET and string.sub(rule[1], 1, 1) ~= FUNCTION then
      comparing[#comparing + 1] = rule[1] .. ' ' .. (string.match(rule[2], '^%a%d+') or '')
    end
  end
  table.sort(comparing)
  if #comparing > 0 then
    call('HSET', PAUSES, ARGUMENTS, redis.sha1hex(table.concat(comparing, '\n')))
  else
    call('HDEL', PAUSES, ARGUMENTS)
  end
  if #rules == 0 then call('DEL', PAUSES) end
  call('PUBLISH', CHANNELS .. 'pauses/', 'P' .. proof('pauses', '', ''))
end

local RELEASED_BYTES, RELEASED_CHUNK = 262144, 50

-- Moves up to `most` held tasks of a rule to the front stream, in order, and about 256 kB of
-- records. Returns how many it moved, and how many are left.
local function release_some(rule, most)
  local set, moved, size = HELD_TASKS .. segment(rule), 0, 0
  while most > 0 and size < RELEASED_BYTES do
    local members = call('ZRANGE', set, 0, math.min(most, RELEASED_CHUNK) - 1)
    if #members == 0 then break end
    local keys = {}
    for i, member in ipairs(members) do keys[i] = string.sub(member, 11) end
    local records, rules, fields = call('HMGET', TASKS, unpack(keys)), call('HMGET', HELD_BY, unpack(keys)), {}
    for i, key in ipairs(keys) do
      local task = records[i] and rules[i] == rule and unpack_task(records[i])
      if task and task.location == HELD and held_member(key, task) == members[i] then
        to_front(key, task)
        fields[#fields + 1] = key
        fields[#fields + 1] = pack_task(task)
        size, moved = size + #records[i], moved + 1
        publish(key, waiting_event(task))
        call('HDEL', HELD_BY, key)
      end
    end
    if #fields > 0 then call('HSET', TASKS, unpack(fields)) end
    call('ZREM', set, unpack(members))
    most = most - #members
  end
  return moved, call('ZCARD', set)
end

-- Deletes a rule that is being resumed and holds nothing any more. Returns whether it did.
local function forget_if_released(rule)
  if call('EXISTS', HELD_TASKS .. segment(rule)) == 1 then return false end
  call('HDEL', PAUSES, rule)
  rules_changed()
  return true
end
