-- Moves tasks that have fallen due from the queue to the stream, in order of their time.
-- ARGV[2]: msgpack {at most this many}.
-- Returns: how many were moved, server ms, due time of the next one or -1.
local most = unpack(cmsgpack.unpack(ARGV[2]))
local now = server_ms()
local head = call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
if not head[2] or tonumber(head[2]) > now then return {0, now, head[2] and tonumber(head[2]) or -1} end
insist()
local due = call('ZRANGEBYSCORE', QUEUE, '-inf', now, 'LIMIT', 0, most)
if #due > 0 then
  local records, fields, size = call('HMGET', TASKS, unpack(due)), {}, 0
  for i, key in ipairs(due) do
    if records[i] then
      local task = unpack_task(records[i])
      to_stream(key, task)
      fields[#fields + 1] = key
      fields[#fields + 1] = pack_task(task)
      size = size + #records[i]
      publish(key, waiting_event(task))
    end
  end
  if #fields > 0 then call('HSET', TASKS, unpack(fields)) end
  call('ZREM', QUEUE, unpack(due))
  try_to_hand_over(#fields / 2, size)
end
head = call('ZRANGE', QUEUE, 0, 0, 'WITHSCORES')
return {#due, now, head[2] and tonumber(head[2]) or -1}
