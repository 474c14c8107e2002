-- Notes of repeated requests (docs/design/state-machine.md, "Generated keys"). A key in REPEATED
-- belongs to a call that was stored, so an earlier request of that call stores nothing.
-- uses: keys

-- How long the notes stay after the last one, and how many there are at most.
local REPEATED_MS, MOST_REPEATED = 3600000, 100000

-- Which of these keys have a note: key → true.
local function noted_repeats(keys)
  local noted = {}
  -- Fails if the key has another type: before the script has written anything, so that it can be
  -- repeated.
  call('ZCARD', REPEATED)
  if #keys == 0 then return noted end
  for i, time in ipairs(call('ZMSCORE', REPEATED, unpack(keys))) do
    if time then noted[keys[i]] = true end
  end
  return noted
end

-- Must come after the writes of the task records: a note says that the task is stored.
local function note_repeats(keys)
  -- The newest note has the highest time, even if the clock was set back.
  local newest = call('ZRANGE', REPEATED, -1, -1, 'WITHSCORES')
  local time = math.max(real_ms(), number_in(newest[2], 0))
  local members = {}
  for _, key in ipairs(keys) do
    members[#members + 1] = time
    members[#members + 1] = key
  end
  call('ZADD', REPEATED, unpack(members))
  call('PEXPIRE', REPEATED, REPEATED_MS)
  call('ZREMRANGEBYRANK', REPEATED, 0, -MOST_REPEATED - 1)
end
