-- Tasks that another program keeps under this docket's key names (docs/design/foreign-tasks.md).
-- uses: keys, entries

-- The other program's scheduled tasks: task key → due time
-- in seconds. Only the script import_tasks writes to it.
local FOREIGN_QUEUE = P .. 'queue'

-- Saves an entry of another program before it is dropped. Does nothing for an entry of docket.
local function keep_foreign(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  if entry and not entry_key(entry[2]) then call('XADD', FOREIGN, '*', unpack(entry[2])) end
end
