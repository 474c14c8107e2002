-- Claims entries that a blocking read delivered.
-- ARGV[2]: msgpack {worker id, worker name as JSON, list of {from the front (0/1), entry id, key or
--   false}, how to treat suspects (parts/claims.lua)}.
-- Returns: the same as take.
-- uses: keys, fleet, claims
local $Claim(*) = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
if not has_lease(worker) then
  if #delivered > 0 and call('ZSCORE', LOST, worker) then
    -- The worker was declared dead while its read was under way. Another worker must reclaim these
    -- deliveries.
    call('SADD', DYING, worker)
    schedule_reclaim(0)
  end
  return {-1}
end
local entries = no_entries()
for _, d in ipairs(delivered) do add_delivered(entries, d[1] == 1 and FRONT or STREAM, d[2], d[3]) end
return claim_entries(worker, worker_json, entries, suspects)
