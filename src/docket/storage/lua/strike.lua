-- Adds or removes strikes, and publishes the change in the same step.
-- ARGV[2]: msgpack list of {field, rule or false}.
-- Returns: the version of the change, number of changed rules.
-- uses: keys, proofs
local changes = cmsgpack.unpack(ARGV[2])

-- Versions grow even if the server has lost its data, so that no process takes a new change for an
-- old one.
local function next_version()
  local t = call('TIME')
  local known = string.match(call('HGET', STRIKES, 'version') or '', '^%d+$') or '0'
  -- Somebody may have written a number that is too large to count on.
  return math.max(#known <= 16 and tonumber(known) + 1 or 0, t[1] * 1000000 + t[2])
end

-- A server that is out of memory allows all writes of a script whose first write needs no memory. A
-- strike must work on a full server.
local touched = call('HDEL', STRIKES, '')
for _, change in ipairs(changes) do
  if change[2] then
    call('HSET', STRIKES, change[1], change[2])
    touched = touched + 1
  else
    touched = touched + call('HDEL', STRIKES, change[1])
  end
end
if touched == 0 then return {0, 0} end
local version = string.format('%.0f', next_version())
call('HSET', STRIKES, 'version', version)
local body = version .. ' ' .. ARGV[2]
call('PUBLISH', CHANNELS .. 'strikes/', 'S' .. proof('strike', '', body) .. body)
return {tonumber(version), touched}
