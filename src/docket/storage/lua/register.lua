-- Registers a worker with the functions that it knows, gives it a vacant duty, and creates the
-- consumer groups if they are missing.
-- ARGV[2]: msgpack {worker id, lease ms, list of function names, list of {function name, number of
--   losses that bury its tasks} for functions that declare one, a
--   fresh secret, to be used if the docket has none, list of {function
--   name, ms to keep its dead letters} for functions that declare it, list of function names and
--   their declarations (docs/design/web.md)}.
-- Returns: server ms, the worker's duty (1 leader, 2 deputy, 0 none), the secret of the docket or
--   false, then the names of its functions whose tasks wait for a worker that knows them.
-- uses: keys, fleet, proofs, reports
local worker, lease, names, max_losses, fresh, keep_failures, declarations = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
permit_when_full()
ensure_groups()
open_fleet(now)
call('ZADD', LEASES, now + lease, worker)
local longest = number_in(call('HGET', FLEET, 'longest'), 0)
if lease > longest then call('HSET', FLEET, 'longest', lease) end
call('HSET', LEASE_LENGTHS, worker, lease)
local some_declared = call('EXISTS', MAX_LOSSES) == 1
local some_kept = call('EXISTS', KEEP_FAILURES) == 1
for _, name in ipairs(names) do
  if some_declared then call('HDEL', MAX_LOSSES, name) end
  if some_kept then call('HDEL', KEEP_FAILURES, name) end
  call('SADD', WORKER_TASKS .. worker, name)
  call('SADD', TASK_WORKERS .. segment(name), worker)
end
for _, declared in ipairs(max_losses) do call('HSET', MAX_LOSSES, declared[1], declared[2]) end
for _, declared in ipairs(keep_failures) do call('HSET', KEEP_FAILURES, declared[1], declared[2]) end
if #declarations > 0 then
  --- parts
  declare_functions(declarations)
end
forget_reports()
local answer = {now, take_duty(worker), secret_or(fresh)}
if call('EXISTS', UNKNOWN_SINCE) == 1 then
  for _, name in ipairs(names) do
    if call('HEXISTS', UNKNOWN_SINCE, name) == 1 then answer[#answer + 1] = name end
  end
end
return answer
