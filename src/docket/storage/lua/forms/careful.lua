-- The beginning of the careful form of a script (docs/design/damaged-data.md). The commands of the
-- script go through these functions instead of redis.call and redis.pcall. OWN_NAMES is replaced by
-- the names of the docket's keys.
local set_aside = {}
local OWN = OWN_NAMES
local KEPT_MS = 604800000

-- The part of the key name after the docket's prefix, or nil if the key is not the docket's own.
local function own_name(key)
  if type(key) ~= 'string' or string.sub(key, 1, #KEYS[1]) ~= KEYS[1] then return nil end
  local name = string.sub(key, #KEYS[1] + 1)
  return OWN[string.match(name, '^[%a-]+:=') or name] and name or nil
end

-- The position of the key among the words of a command.
local function key_position(words)
  if words[1] == 'XGROUP' or words[1] == 'XINFO' then return 3 end
  for i, word in ipairs(words) do
    if word == 'STREAMS' then return i + 1 end
  end
  return 2
end

-- Removes what the command cannot use. Returns whether it did.
local function repair(words, problem)
  local key = words[key_position(words)]
  local name = own_name(key)
  if not name then return false end
  if string.find(problem, 'WRONGTYPE', 1, true) then
    local target = KEYS[1] .. 'damaged:=' .. string.gsub(name, '[%%:]', {['%'] = '%25', [':'] = '%3A'})
    redis.call('RENAME', key, target)
    redis.call('PEXPIRE', target, KEPT_MS)
    set_aside[#set_aside + 1] = name
    return true
  end
  if words[1] == 'HINCRBY' then
    redis.call('HDEL', key, words[3])
    set_aside[#set_aside + 1] = name .. ' ' .. words[3]
    return true
  end
  return false
end

local function careful_pcall(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err and repair({...}, answer.err) then return redis.pcall(...) end
  return answer
end

local function careful_call(...)
  local answer = careful_pcall(...)
  -- Raises the error of the server in the server's own way.
  if type(answer) == 'table' and answer.err then return redis.call(...) end
  return answer
end
