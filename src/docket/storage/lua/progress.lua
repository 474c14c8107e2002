-- Writes down the progress of runs, each fenced by its epoch (0: whoever runs it).
-- ARGV[2]: msgpack list of {key, epoch, progress, event}.
-- Returns: per item 1 written, 0 lost.
insist()
local items, answer = cmsgpack.unpack(ARGV[2]), {}
for i, item in ipairs(items) do
  local bytes = call('HGET', RUNNING, item[1])
  if bytes and (item[2] == 0 or unpack_run(bytes).epoch == item[2]) then
    call('HSET', PROGRESS, item[1], item[3])
    publish(item[1], item[4])
    answer[i] = 1
  else
    answer[i] = 0
  end
end
return answer
