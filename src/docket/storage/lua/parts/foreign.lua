-- Tasks that another program keeps under this docket's key names (docs/design/foreign-tasks.md).
-- uses: keys

-- The other program's scheduled tasks: task key → due time in seconds. No script writes to it but
-- the one that takes them over.
local FOREIGN_QUEUE = P .. 'queue'

-- Keeps an entry that another program wrote, before it is dropped (docs/design/foreign-tasks.md).
-- An entry of ours is not kept.
local function keep_foreign(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  if entry and entry[2][1] ~= 'k' then call('XADD', FOREIGN, '*', unpack(entry[2])) end
end
