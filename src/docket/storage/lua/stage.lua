-- Moves due tasks from the schedule to the stream, in the order of their due times. Tasks that lost
-- a worker go to the front stream. One call moves about 256 kB of records at most, so that it does
-- not block the server for long: the caller repeats it.
-- ARGV[2]: msgpack {most tasks to move, worker that wants to stage, or false for a caller that is
--   not a worker, whether a renewal asked it to stage (0/1)}.
-- Returns: number of moved tasks, server ms with its fraction, due time of the next task or -1, the
--   worker's duty (1 leader, 2 deputy, 0 none; of the workers only the leader moves tasks).
-- uses: keys, records, fleet, placement, direct_delivery
local BYTES, CHUNK = 262144, 50
local most, worker, is_summoned = unpack(cmsgpack.unpack(ARGV[2]))
local _, now_us = server_ms()
local now = now_us / 1000
local head = call('ZRANGE', SCHEDULE, 0, 0, 'WITHSCORES')
local duty = worker and lead_staging(worker, is_summoned == 1, head[2] and tonumber(head[2]) <= now - 400) or NO_DUTY
if not head[2] or tonumber(head[2]) > now or (worker and duty ~= LEADER) then
  return {0, string.format('%.3f', now), head[2] or '-1', duty}
end
permit_when_full()
local due = call('ZRANGEBYSCORE', SCHEDULE, '-inf', now, 'LIMIT', 0, most)
local moved = 0
if #due > 0 then
  local fields, index_of, size = {}, {}, 0
  while moved < #due and size < BYTES do
    local last = math.min(moved + CHUNK, #due)
    local records = call('HMGET', TASKS, unpack(due, moved + 1, last))
    for i = moved + 1, last do
      local key, bytes = due[i], records[i - moved]
      local task = bytes and unpack_task(bytes)
      if task and not is_unknown_location(task) then
        if losses_of(task) > 0 then
          --- parts
          to_front(key, task)
        else
          to_stream(key, task)
        end
        index_of[key] = #fields + 1
        fields[#fields + 1] = key
        fields[#fields + 1] = pack_task(task)
        size = size + #bytes
        publish(key, waiting_event(task))
      end
    end
    moved = last
  end
  if #fields > 0 then call('HSET', TASKS, unpack(fields)) end
  call('ZREM', SCHEDULE, unpack(due, 1, moved))
  try_direct_delivery(#fields / 2, size, fields, index_of, math.floor(now), now_us)
end
head = call('ZRANGE', SCHEDULE, 0, 0, 'WITHSCORES')
if worker and head[2] and tonumber(head[2]) <= now then
  call('HSET', FLEET, 'staged', string.format('%.0f', real_ms()))
end
return {moved, string.format('%.3f', now), head[2] or '-1', duty}
