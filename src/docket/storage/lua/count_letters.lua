-- Counts the dead letters, all of them and by kind.
-- No arguments.
-- Returns: server ms, number of letters, their bytes, number of dropped letters, number of expired
--   letters, the last id, then per kind: its id, its entry.
-- uses: keys
local counts = call('HMGET', LETTER_COUNTS, 'bytes', 'dropped', 'expired', 'id')
local answer = {(server_ms()), call('ZCARD', LETTERS)}
for i = 1, 4 do answer[i + 2] = number_in(counts[i], 0) end
local kinds = call('HGETALL', LETTER_KINDS)
for i = 1, #kinds do answer[i + 6] = kinds[i] end
return answer
