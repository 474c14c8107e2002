-- Deletes dead letters and their payloads.
-- ARGV[2]: msgpack {id of the batch, number of the step, list of letter ids}.
-- Returns: per letter: 1 discarded, 0 there is no such letter. A repeated step gets the answer of
--   the first one.
-- uses: keys, letters, batches
local batch, step, ids = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local before = answer_of(batch, step)
if before then return before end
local records = call('HMGET', LETTER_RECORDS, unpack(ids))
local answer, found, found_records, keys, key_ids = {}, {}, {}, {}, {}
for i, bytes in ipairs(records) do
  answer[i] = bytes and 1 or 0
  if bytes then
    found[#found + 1], found_records[#found_records + 1] = ids[i], bytes
    local l = unpack_letter(bytes)
    if l then keys[#keys + 1], key_ids[#key_ids + 1] = letter_text(bytes, l, 'key'), ids[i] end
  end
end
drop_letters(found, found_records)
cancel_chains(keys, key_ids)
keep_answer(batch, step, answer)
return answer
