-- Batches that retry or discard dead letters (docs/design/dead-letters.md).
-- uses: keys
local BATCH_MS = 600000

-- The answer to this step, if it was taken before.
local function answer_of(batch, step)
  local stored = call('GET', LETTER_BATCH .. batch)
  if not stored then return nil end
  local is_read, last = pcall(cmsgpack.unpack, stored)
  return is_read and type(last) == 'table' and last[1] == step and last[2] or nil
end

local function keep_answer(batch, step, answer)
  call('SET', LETTER_BATCH .. batch, cmsgpack.pack({step, answer}), 'PX', BATCH_MS)
end

-- The chains of these keys run again.
local function revive_chains(keys)
  if call('EXISTS', BURIED_CHAINS) == 0 then return 0 end
  local revived = 0
  for _, key in ipairs(keys) do
    if call('HDEL', BURIED_CHAINS, key) == 1 then
      revived = revived + 1
      call('HDEL', CANCELLED_CHAINS, key)
    end
  end
  return revived
end

-- The letters of these keys were discarded: their chains are cancelled from now on. A chain whose
-- note names another letter stays buried.
local function cancel_chains(keys, ids)
  if call('EXISTS', BURIED_CHAINS) == 0 then return end
  for i, key in ipairs(keys) do
    local note = call('HGET', BURIED_CHAINS, key)
    if note and string.match(note, '^%d+ (%S+)') == ids[i] then call('HDEL', BURIED_CHAINS, key) end
  end
end
