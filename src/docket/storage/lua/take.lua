-- Reads as many ready entries as asked for, without blocking, and claims them. What was put back goes first.
-- ARGV[2]: msgpack {worker id, worker name as JSON, count, keeps a slot for an offer beside those (0/1), may have offered it
--   before (0/1), epoch of the last hand-over it knows, ms for which it is offered if there is nothing to take (0: it is not),
--   reads `front` (0/1)}.
-- Returns: server ms (or -1: this worker has no lease), offer, then per claimed task: key, task record, epoch;
--   then a note on suspects, if it met any (parts/claiming.lua).
--   offer: 0 none, 1 the slot is offered, else the epoch of a hand-over that is on its way and takes the slot.
local worker, worker_json, count, kept, offered, last, offer_ms, reads_front = unpack(cmsgpack.unpack(ARGV[2]))
if not has_lease(worker) then return {-1} end
local offer = 0
if offered == 1 and call('ZREM', OFFERS, worker) == 0 then
  local handed = tonumber(call('HGET', HANDED, worker) or '0')
  if handed ~= last then offer = handed end
end
local spare = kept == 1 and offer == 0
local answer = claim_entries(worker, worker_json, read_ready(worker, spare and count + 1 or count, reads_front), 1)
if spare and offer_ms > 0 and #answer < 5 then
  insist()
  call('ZADD', OFFERS, real_ms() + offer_ms, worker)
  offer = 1
end
answer[2] = offer
return answer
