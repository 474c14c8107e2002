-- Tasks that another program keeps under this docket's key names (docs/design/foreign-tasks.md).
-- uses: keys, entries

-- The other program's scheduled tasks: task key → due time
-- in seconds. Only the script import_tasks writes to it.
local FOREIGN_QUEUE = P .. 'queue'

-- A command of a script has a bounded number of arguments. An entry with more values than this is
-- kept as one value.
local MOST_VALUES = 4000

-- Saves an entry of another program before it is dropped. Does nothing for an entry of docket.
local function keep_foreign(stream, id)
  local entry = call('XRANGE', stream, id, id)[1]
  if not entry or entry_key(entry[2]) then return end
  if #entry[2] > MOST_VALUES then
    call('XADD', FOREIGN, '*', 'packed', cmsgpack.pack(entry[2]))
  else
    call('XADD', FOREIGN, '*', unpack(entry[2]))
  end
end
