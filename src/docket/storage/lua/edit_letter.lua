-- Replaces the call of a dead letter.
-- ARGV[2]: msgpack {letter id, number of edits that the caller has read, call, whether the call is
--   the reference to a stored payload, arguments as the letter has them}.
-- Returns: 1 done, 0 there is no such letter, 2 somebody
--   else has edited it, 3 the payload is missing
--   (the script changed nothing), 4 its record is damaged.
-- uses: keys, records, payloads, letters
local DONE, GONE, EDITED, MISSING, DAMAGED = 1, 0, 2, 3, 4
local id, edits, new_call, stored, arguments = unpack(cmsgpack.unpack(ARGV[2]))
local bytes = call('HGET', LETTER_RECORDS, id)
if not bytes then return GONE end
local l = unpack_letter(bytes)
if not l then return DAMAGED end
local before = letter_text(bytes, l, 'task')
local task = unpack_task(before)
if task.broken then return DAMAGED end
if l.edits ~= edits then
  -- The answer to this edit may have been lost.
  local is_this_one = l.edits == edits + 1 and task.call == new_call and letter_text(bytes, l, 'arguments') == arguments
  return is_this_one and DONE or EDITED
end
local payload = stored and named_payload(new_call)
if payload and not adopt_payload(payload) then return MISSING end
drop_payload(before, payload)
task.call, task.flags = new_call, task.flags - task.flags % 2 + (payload and APART or 0)
local old_size = l.size
for _, name in ipairs({'kind', 'key', 'error', 'place', 'text', 'traceback'}) do l[name] = letter_text(bytes, l, name) end
l.task, l.arguments, l.rest, l.edits, l.size = pack_task(task), arguments, string.sub(bytes, l.rest_at), l.edits + 1, 0
l.size = #pack_letter(l) + apart_size(l.task)
call('HSET', LETTER_RECORDS, id, pack_letter(l))
call('HINCRBY', LETTER_COUNTS, 'bytes', string.format('%.0f', l.size - old_size))
change_kind(l.kind, l.size - old_size)
return DONE
