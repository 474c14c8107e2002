-- Deliveries that the server counts as this worker's and the worker does not know: their answer was lost.
-- ARGV[2]: msgpack {worker id, list of task keys the worker knows of, list of stray entry ids seen last time}.
-- Returns: list of {from the front (0/1), entry id, key or false, seen last time (0/1)}.
local worker, known_keys, seen_ids = unpack(cmsgpack.unpack(ARGV[2]))
local known, seen, answer = {}, {}, {}
for _, key in ipairs(known_keys) do known[key] = true end
for _, id in ipairs(seen_ids) do seen[id] = true end
for _, stream in ipairs({STREAM, FRONT}) do
  local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', #known_keys + 100, worker)
  if type(pending) == 'table' and not pending.err then
    for _, p in ipairs(pending) do
      local entry = call('XRANGE', stream, p[1], p[1])[1]
      local key = entry and entry[2][1] == 'k' and entry[2][2]
      if not key or not known[key] then
        local front = stream == FRONT and 1 or 0
        answer[#answer + 1] = {front, p[1], key or '', seen[p[1]] and 1 or 0}
      end
    end
  end
end
return answer
