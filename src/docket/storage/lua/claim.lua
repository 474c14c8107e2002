-- Claims entries that a blocking read delivered.
-- KEYS: all. ARGV[2]: msgpack {worker id, worker name as JSON, list of {from the front (0/1), entry id, key or false}}.
-- Returns: as take.
--- include keys
--- include records
--- include moves
--- include claiming
local worker, worker_json, delivered = unpack(cmsgpack.unpack(ARGV[2]))
if not has_lease(worker) then return {-1} end
insist()
local entries = {}
for i, d in ipairs(delivered) do entries[i] = {d[1] == 1 and FRONT or STREAM, d[2], d[3]} end
return claim_entries(worker, worker_json, entries)
