-- Delivers ready tasks to idle workers that have offered a slot (docs/design/lease-protocol.md).
-- uses: keys, records, events, placement, claims

-- Claims the oldest entry of the stream for the worker: key, task record, epoch. It takes a record
-- that this script has written from `fields` instead of reading it.
-- twin of: plain claim (claims.lua)
local function claim_oldest(worker, fields, index_of, now, now_us)
  local entries = read_from(STREAM, worker, 1, no_entries())
  local id, key = entries.ids[1], entries.keys[1]
  if not id then return nil end
  local at, bytes, losses, ms, seq = index_of[key], nil, 0, 0, 0
  if at then
    bytes = fields[at + 1]
    losses, ms, seq = losses_and_entry(bytes)
  end
  if losses > 0 or id ~= id_text(ms, seq) then
    --- parts
    local claimed = claim_entries(worker, name_json(worker), entries, 0)
    if not claimed[5] then return nil end
    return claimed[3], claimed[4], claimed[5]
  end
  local epoch = next_epochs(1, now_us)
  call('HSET', RUNNING, key, struct.pack($RUN{epoch = epoch, started = now, entry_ms = ms, entry_seq = seq, flags = 0, worker = worker, limits = ''}))
  publish(key, running_event(name_json(worker), now))
  return key, bytes, epoch
end

local MOST_DIRECT = 8

-- A worker without a lease or without a subscription loses its offer and nothing else. Tasks of the
-- front stream go first, and may have taken a worker down: they go only to a worker that asks, so
-- there is no direct delivery while any of them is undelivered.
local function deliver_directly(ready, fields, index_of, now, now_us)
  local real_now = KEYS[2] and real_ms() or now
  if has_undelivered(FRONT) then return end
  for _ = 1, math.min(ready, MOST_DIRECT) do
    local offer = call('ZPOPMAX', OFFERS)
    local worker = offer[1]
    if not worker then return end
    if tonumber(offer[2]) < real_now then
      call('DEL', OFFERS)
      return
    end
    local channel = CHANNELS .. 'hand/' .. worker
    -- The secret proves to the worker that this script saw its offer (docs/design/proofs.md).
    local secret = call('HGET', OFFER_SECRETS, worker)
    if secret and call('ZSCORE', LEASES, worker) and call('PUBSUB', 'NUMSUB', channel)[2] ~= 0 then
      local key, bytes, epoch = claim_oldest(worker, fields, index_of, now, now_us)
      if not key then
        call('ZADD', OFFERS, offer[2], worker)
        return
      end
      call('HSET', LAST_DIRECT, worker, string.format('%.0f', epoch))
      call('PUBLISH', channel, secret .. cmsgpack.pack({key, bytes, epoch, now, real_now}))
    end
  end
end

-- Large arguments would be sent twice. An error here must not fail the request of the caller, which
-- did not ask for a direct delivery.
local LARGEST_DIRECT = 32768

-- The position of each key in a list of keys and records.
local function positions(fields)
  local index_of = {}
  for at = 1, #fields, 2 do index_of[fields[at]] = at end
  return index_of
end

-- `fields` has keys and the records that this script has written for them; `index_of` has the
-- position of each key in `fields`, or is nil. While there are pauses, only workers that ask get
-- tasks.
local function try_direct_delivery(ready, size, fields, index_of, now, now_us)
  if ready > 0 and size <= LARGEST_DIRECT and call('EXISTS', OFFERS, PAUSES) == 1 then
    --- parts
    pcall(deliver_directly, ready, fields, index_of or positions(fields), now, now_us)
  end
end
