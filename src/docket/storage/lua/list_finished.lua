-- Lists a page of finished tasks whose records have not expired; only the heads of the records.
-- ARGV[2]: msgpack {cursor, number of keys to read, pattern of key names, state or -1, function
--   name or false}.
-- Returns: next cursor ('0' at the end), then per task: name of its key, head of its finished
--   record, size of the whole record in bytes.
-- uses: keys
local LONGEST_NAME, NAME_AT = 65535, FINISHED_HEADER_SIZE + TASK_HEADER_SIZE
local cursor, count, pattern, state, name = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count)
local answer = {page[1]}
for _, key in ipairs(page[2]) do
  -- Most function names are short; only a long one needs a second read.
  local head = call('GETRANGE', key, 0, NAME_AT + 255)
  if #head > NAME_AT then
    local length = struct.unpack('<H', string.sub(head, NAME_AT - 1))
    if length > 256 then head = call('GETRANGE', key, 0, NAME_AT + LONGEST_NAME) end
    head = string.sub(head, 1, NAME_AT + length)
    local ended = string.byte(head, FINISHED_STATE_AT) % RESULT_APART
    local its_name = string.sub(head, NAME_AT + 1)
    if (state < 0 or state == ended) and (not name or name == its_name) then
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3] = key, head, call('STRLEN', key)
    end
  end
end
return answer
