-- Reads one dead letter.
-- ARGV[2]: msgpack {id or false, key}. Without an id: the newest letter of the key.
-- Returns: its id, its bytes; false if there is none.
-- uses: keys, letters
local id, key = unpack(cmsgpack.unpack(ARGV[2]))
id = id or newest_letter(key)
if not id then return false end
local bytes = call('HGET', LETTER_RECORDS, id)
return bytes and {id, bytes} or false
