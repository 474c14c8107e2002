-- Notes of repeated requests (docs/design/state-machine.md, "Generated keys"). A key in REPEATED
-- belongs to a call that was stored, so an earlier request of that call stores nothing.
-- uses: keys

-- How long a note stays, and how many there are at most.
local REPEATED_MS, MOST_REPEATED = 3600000, 100000

-- Which of these keys have a note: key → true.
local function noted_repeats(keys)
  local noted = {}
  if #keys == 0 then return noted end
  for i, time in ipairs(call('ZMSCORE', REPEATED, unpack(keys))) do
    if time then noted[keys[i]] = true end
  end
  return noted
end

local function note_repeats(keys)
  local now = real_ms()
  local members = {}
  for _, key in ipairs(keys) do
    members[#members + 1] = now
    members[#members + 1] = key
  end
  call('ZADD', REPEATED, unpack(members))
  call('ZREMRANGEBYSCORE', REPEATED, '-inf', now - REPEATED_MS)
  call('ZREMRANGEBYRANK', REPEATED, 0, -MOST_REPEATED - 1)
  call('PEXPIRE', REPEATED, REPEATED_MS)
end
