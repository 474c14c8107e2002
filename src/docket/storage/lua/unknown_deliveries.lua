-- Lists deliveries that the server has given to this worker and that belong to none of the worker's
-- runs: the answer that carried them was lost.
-- ARGV[2]: msgpack {worker id, list of the epochs of the worker's runs, list of {from the front
--   (0/1), entry id} that were unknown last time}.
-- Returns: list of {from the front (0/1), entry id, key or '', epoch of its run, 0 if it is not
--   claimed, -1 if its run record is damaged; unknown last time (0/1)}.
-- uses: keys, records, entries
local worker, epochs, before = unpack(cmsgpack.unpack(ARGV[2]))
local has, seen, answer = {}, {[STREAM] = {}, [FRONT] = {}}, {}
for _, epoch in ipairs(epochs) do has[epoch] = true end
for _, entry in ipairs(before) do seen[entry[1] == 1 and FRONT or STREAM][entry[2]] = true end

-- The epoch of the run that this worker claimed the entry for.
local function epoch_of(stream, id, key)
  local bytes = key and call('HGET', RUNNING, key)
  local run = bytes and unpack_run(bytes)
  if bytes and not run then return -1 end
  if run and run.worker == worker and stream_of_run(run) == stream and entry_id(run) == id then return run.epoch end
  return 0
end

for _, stream in ipairs({STREAM, FRONT}) do
  local pending = redis.pcall('XPENDING', stream, GROUP, '-', '+', #epochs + 100, worker)
  if type(pending) == 'table' and not pending.err then
    for _, p in ipairs(pending) do
      local id = p[1]
      local entry = call('XRANGE', stream, id, id)[1]
      local key = entry and entry_key(entry[2])
      local epoch = epoch_of(stream, id, key)
      if not has[epoch] then
        local front = stream == FRONT and 1 or 0
        answer[#answer + 1] = {front, id, key or '', epoch, seen[stream][id] and 1 or 0}
      end
    end
  end
end
return answer
