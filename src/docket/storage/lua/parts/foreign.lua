-- Tasks that another program keeps under this docket's names (docs/design/foreign-tasks.md).
-- uses: keys

-- A score of the queue below this one is of another program, which counts in seconds.
local SECONDS = 1e11

-- Keeps an entry that another program wrote, before it is dropped (docs/design/foreign-tasks.md). An entry of ours is not kept.
local function set_aside(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  if entry and entry[2][1] ~= 'k' then call('XADD', FOREIGN, '*', unpack(entry[2])) end
end

-- The same for a key in the queue that has no task record: another program keeps its call in a hash of that name.
local function set_aside_scheduled(key)
  local fields = redis.pcall('HGETALL', P .. key)
  if not fields.err and #fields > 0 then call('XADD', FOREIGN, '*', unpack(fields)) end
end
