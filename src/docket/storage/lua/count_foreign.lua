-- Counts the tasks that another program keeps under this docket's key names
-- (docs/design/foreign-tasks.md). Changes nothing.
-- No arguments.
-- Returns: scheduled tasks, entries of the stream if some of them are foreign, foreign entries that
--   workers have set aside.
-- uses: keys, entries, foreign
local scheduled, entries = redis.pcall('ZCARD', FOREIGN_QUEUE), 0
if type(scheduled) ~= 'number' then scheduled = 0 end
local first = redis.pcall('XRANGE', STREAM, '-', '+', 'COUNT', 1)[1]
if first then
  local last = call('XREVRANGE', STREAM, '+', '-', 'COUNT', 1)[1]
  if not entry_key(first[2]) or not entry_key(last[2]) then entries = call('XLEN', STREAM) end
end
return {scheduled, entries, call('XLEN', FOREIGN)}
