-- Lists a page of the concurrency limits that are in use.
-- ARGV[2]: msgpack {cursor, number of limits to read, most holders and waiters to name}.
-- Returns: next cursor ('0' at the end), number of all limits, then per limit: name, number of its
--   slots, number in use, number of waiting tasks, list of holders ('r' and epoch, or 'w' and key),
--   list of waiters (key, position, function).
-- uses: keys, records
local cursor, count, most = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('HSCAN', LIMITS, cursor, 'COUNT', count)
local answer = {page[1], call('HLEN', LIMITS)}
for i = 1, #page[2], 2 do
  local limit = page[2][i]
  local slots, waiters = SLOTS .. limit, WAITERS .. limit
  local first, rows = call('ZRANGE', waiters, 0, most - 1, 'WITHSCORES'), {}
  for w = 1, #first, 2 do
    local bytes = call('HGET', TASKS, first[w])
    rows[#rows + 1] = {first[w], first[w + 1], bytes and unpack_task(bytes).name or ''}
  end
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = limit, tonumber(page[2][i + 1]) or 0, call('SCARD', slots)
  answer[n + 4], answer[n + 5], answer[n + 6] = call('ZCARD', waiters), call('SRANDMEMBER', slots, most), rows
end
return answer
