-- Finds out who listens to the events of many tasks: a message without a listener costs as much as
-- a message with one, and few tasks have a listener.
-- uses: keys

-- On a cluster the prefix begins with a brace, and a node knows only its own listeners.
local IS_CLUSTER = string.byte(P) == 123

-- For so few tasks it costs less to publish than to ask.
local FEW_TASKS = 3

-- Which of these tasks have a listener, by position. `keys` has a key at every position, or at
-- every `step`th one. nil: all may have a listener. false: none has. Whoever listens to a task also
-- subscribes to the channel of listeners (storage/subscriptions.py).
local function heard(keys, step)
  if #keys <= FEW_TASKS * step or IS_CLUSTER or call('PUBSUB', 'NUMPAT') > 0 then return nil end
  if call('PUBSUB', 'NUMSUB', CHANNELS .. 'listeners/')[2] == 0 then return false end
  local prefix, channels, found = CHANNELS .. 'task/', {}, {}
  for i = 1, #keys, step do channels[#channels + 1] = prefix .. keys[i] end
  local counts = call('PUBSUB', 'NUMSUB', unpack(channels))
  for i = 2, #counts, 2 do
    if counts[i] ~= 0 then found[i / 2] = true end
  end
  return found
end

-- The worker's name from its id, as JSON; the inverse of worker_id() in ledger/fleet.py.
local function name_json(worker)
  local name = string.gsub(string.match(worker, '^(.*)~') or worker, '%%(%x%x)', {['25'] = '%', ['3A'] = ':'})
  return cjson.encode(name)
end
