-- Reads as many ready entries as asked for, without blocking, and claims them. What was put back goes first.
-- KEYS: all. ARGV[2]: msgpack {worker id, worker name as JSON, count}.
-- Returns: server ms (or -1: this worker has no lease), then per claimed task: key, task record, epoch.
--- include keys
--- include records
--- include moves
--- include claiming
local worker, worker_json, count = unpack(cmsgpack.unpack(ARGV[2]))
if not has_lease(worker) then return {-1} end
local entries = {}

local function read(stream, most)
  local command = {'XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', most, 'STREAMS', stream, '>'}
  local reply = redis.pcall(unpack(command))
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'NOGROUP', 1, true) then error(reply.err) end
    ensure_groups()
    reply = call(unpack(command))
  end
  if reply and reply[1] then add_entries(entries, stream, reply[1][2]) end
end

-- A count of 0 would mean all.
if count <= 0 then return {(server_ms())} end
if call('XLEN', FRONT) > 0 then read(FRONT, count) end
if #entries < count then read(STREAM, count - #entries) end
return claim_entries(worker, worker_json, entries)
