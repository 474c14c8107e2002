-- A page of finished tasks that are still remembered, heads only.
-- ARGV[2]: msgpack {cursor, how many keys to look at, pattern of key names, state or -1, function name or false}.
-- Returns: next cursor ('0' at the end), then per task: name of its key, head of its finished record, bytes of the whole.
-- uses: keys, records, payloads
local FINISHED_HEAD, LONGEST_NAME = 30, 65535
local cursor, count, pattern, state, name = unpack(cmsgpack.unpack(ARGV[2]))
local page = call('SCAN', cursor, 'MATCH', pattern, 'COUNT', count)
local answer = {page[1]}
for _, key in ipairs(page[2]) do
  -- The function's name is short as a rule; only a long one is worth a second read.
  local head = call('GETRANGE', key, 0, FINISHED_HEAD + TASK_HEADER_SIZE + 255)
  if #head > FINISHED_HEAD + TASK_HEADER_SIZE then
    local length = struct.unpack('<H', string.sub(head, FINISHED_HEAD + TASK_HEADER_SIZE - 1))
    if length > 256 then head = call('GETRANGE', key, 0, FINISHED_HEAD + TASK_HEADER_SIZE + LONGEST_NAME) end
    head = string.sub(head, 1, FINISHED_HEAD + TASK_HEADER_SIZE + length)
    local ended = string.byte(head, 2) % RESULT_APART
    local its_name = string.sub(head, FINISHED_HEAD + TASK_HEADER_SIZE + 1)
    if (state < 0 or state == ended) and (not name or name == its_name) then
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3] = key, head, call('STRLEN', key)
    end
  end
end
return answer
