-- The submission that was let through is kept from beginning by something else: when it is back it is let through again.
-- ARGV[2]: msgpack {key, state, the submission that was let through}.
-- Returns: nothing of interest.
local key, state, receipt = unpack(cmsgpack.unpack(ARGV[2]))
insist()
local bytes = call('HGET', TASKS, key)
if bytes and call('HGET', state, 'winner') == receipt then
  call('HSET', state, 'again', string.format('%.0f ', unpack_task(bytes).generation) .. key)
end
return 1
