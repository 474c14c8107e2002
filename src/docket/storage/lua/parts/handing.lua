-- Gives ready tasks straight to workers that wait and have offered a slot (docs/design/lease-protocol.md).

-- A worker's name from its id, as JSON; the reverse of worker_id() in ledger/ledger.py.
local function name_json(worker)
  local name = string.gsub(string.match(worker, '^(.*)~') or worker, '%%(%x%x)', {['25'] = '%', ['3A'] = ':'})
  return cjson.encode(name)
end

local MOST_HAND_OVERS = 8

-- A worker that has no lease, or does not listen, loses its offer and nothing else. What was put back may have harmed a worker
-- before, and goes only to one that asks for it.
local function hand_over(ready)
  for _ = 1, math.min(ready, MOST_HAND_OVERS) do
    local offer = call('ZPOPMAX', OFFERS)
    local worker = offer[1]
    if not worker then return end
    if tonumber(offer[2]) < real_ms() then
      call('DEL', OFFERS)
      return
    end
    local channel = CHANNELS .. 'hand/' .. worker
    if has_lease(worker) and tonumber(call('PUBSUB', 'NUMSUB', channel)[2]) > 0 then
      local entries = call('XLEN', FRONT) == 0 and read_from(STREAM, worker, 1, {}) or {}
      local claimed = claim_entries(worker, name_json(worker), entries)
      if not claimed[3] then
        call('ZADD', OFFERS, offer[2], worker)
        return
      end
      call('HSET', HANDED, worker, string.format('%.0f', claimed[5]))
      call('PUBLISH', channel, cmsgpack.pack({claimed[3], claimed[4], claimed[5]}))
    end
  end
end

-- Not for large arguments, which would be sent twice. It is no part of what the caller asked for, so that must not fail with it.
local LARGEST_HAND_OVER = 32768

local function try_to_hand_over(ready, size)
  if ready > 0 and size <= LARGEST_HAND_OVER and call('EXISTS', OFFERS) == 1 then
    --- parts
    pcall(hand_over, ready)
  end
end
