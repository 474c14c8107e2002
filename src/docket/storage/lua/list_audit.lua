-- Lists a page of the changes that were written down, the newest first.
-- ARGV[2]: msgpack {id after which the page begins, or '', number of entries}.
-- Returns: number of all entries, then per entry: id, server ms, entry.
-- uses: keys
local after, count = unpack(cmsgpack.unpack(ARGV[2]))
local answer = {call('XLEN', AUDIT)}
for _, entry in ipairs(call('XREVRANGE', AUDIT, after == '' and '+' or '(' .. after, '-', 'COUNT', count)) do
  local fields, n = entry[2], #answer
  if fields[1] == 't' and fields[3] == 'e' then
    answer[n + 1], answer[n + 2], answer[n + 3] = entry[1], fields[2], fields[4]
  end
end
return answer
