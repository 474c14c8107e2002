-- Reads up to `count` ready entries without blocking and claims them. The front stream goes first.
-- ARGV[2]: msgpack {worker id, worker name as JSON, count, has one more slot that it may offer
--   (0/1), may have offered it before (0/1), epoch of the last direct delivery that the worker
--   knows, ms for which the offer is valid if there is nothing to take (0: no offer), reads the
--   front stream (0/1), list of functions whose tasks may wait for a worker that knows them, or
--   false, how to treat suspects (parts/claims.lua), the secret of the offer}.
-- Returns: server ms (or -1: this worker has no lease), offer, then per claimed task: key, task
--   record, epoch; then a note on suspects, if there were any (parts/claims.lua); then, if the
--   caller named functions, the list of those whose tasks still wait.
--   offer: 0 none, 1 the slot is offered, else the epoch of a direct delivery that is under way and
--     takes the slot.
-- uses: keys, records, unknown_functions, placement, claims
local $Take(*, how_many = count) = unpack(cmsgpack.unpack(ARGV[2]))
if not has_lease(worker) then return {-1} end
local offer = 0
if may_have_offered == 1 and call('ZREM', OFFERS, worker) == 0 then
  local last_direct = number_in(call('HGET', LAST_DIRECT, worker), 0)
  if last_direct ~= last_known then offer = last_direct end
end
local may_offer = has_spare_slot == 1 and offer == 0
local most = may_offer and count + 1 or count
local entries, left = nil, nil
if functions then
  --- parts
  -- The same as read_ready, but tasks of these functions come after the front stream's entries.
  -- They move to the front stream when all of its entries are delivered, and are read at once, so
  -- no other worker gets them. A worker that does not read the front stream takes them later.
  -- reading with functions, twin of: read_ready (claims.lua)
  entries, left = no_entries(), {}
  if most > 0 and reads_front == 1 and call('XLEN', FRONT) > 0 then read_from(FRONT, worker, most, entries) end
  for _, name in ipairs(functions) do
    local free = reads_front == 1 and most - #entries.ids or 0
    local found = free > 0 and call('ZPOPMIN', UNKNOWN_TASKS .. segment(name), free) or {}
    local moved = 0
    for i = 1, #found, 2 do
      local bytes = call('HGET', TASKS, found[i])
      local task = bytes and unpack_task(bytes)
      if task and task.location == UNKNOWN_FUNCTION then
        to_front(found[i], task)
        call('HSET', TASKS, found[i], pack_task(task))
        moved = moved + 1
      end
    end
    if moved > 0 then read_from(FRONT, worker, moved, entries) end
    if forget_if_none_wait(name) then left[#left + 1] = name end
  end
  if #entries.ids < most then read_from(STREAM, worker, most - #entries.ids, entries) end
else
  entries = read_ready(worker, most, reads_front)
end
local answer = claim_entries(worker, worker_json, entries, suspects)
-- If a pause holds all of these, the next ones follow: a task behind many held ones must not wait
-- for as many requests.
local ROUNDS = 9
for _ = 1, ROUNDS do
  local is_without_notes = #answer == 2 or #answer == 3 and type(answer[3]) == 'string'
  if #entries.ids == 0 or functions or not is_without_notes or call('EXISTS', PAUSES) == 0 then break end
  entries = read_ready(worker, most, reads_front)
  answer = claim_entries(worker, worker_json, entries, suspects)
end
if may_offer and offer_ms > 0 and #answer < 5 then
  permit_when_full()
  call('ZADD', OFFERS, real_ms() + offer_ms, worker)
  call('HSET', OFFER_SECRETS, worker, secret)
  offer = 1
end
answer[2] = offer
if left then answer[#answer + 1] = left end
return answer
