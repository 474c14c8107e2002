-- Lists a page of the workers that have a lease, with what they told about themselves.
-- ARGV[2]: msgpack {cursor, number of workers to read}.
-- Returns: next cursor ('0' at the end), leader or false, deputy or false, then per worker: id, end
--   of its lease (server ms), length of its lease (ms), report or false, is stopping (0/1), list of
--   function names.
-- uses: keys
local cursor, count = unpack(cmsgpack.unpack(ARGV[2]))
local page, duties = call('HSCAN', LEASE_LENGTHS, cursor, 'COUNT', count), call('HMGET', FLEET, 'leader', 'deputy')
local answer = {page[1], duties[1], duties[2]}
for i = 1, #page[2], 2 do
  local worker, n = page[2][i], #answer
  local ends = call('ZSCORE', LEASES, worker)
  if ends then
    answer[n + 1], answer[n + 2], answer[n + 3] = worker, ends, page[2][i + 1]
    answer[n + 4], answer[n + 5] = call('HGET', WORKER_REPORTS, worker), call('SISMEMBER', STOPPING, worker)
    answer[n + 6] = call('SMEMBERS', WORKER_TASKS .. worker)
  end
end
return answer
