-- The items of settle. Their fields have the same order in ledger/settlements.py; a test compares
-- the two.
-- uses: nothing

local FINISH, RESCHEDULE, REQUEUE, BLOCKED, UNKNOWN, HOLD = 0, 1, 2, 3, 4, 5
-- The purpose of a finish. DEAD_LETTER and ENDS_CHAIN may be added.
local PLAIN, DEAD_LETTER, ENDS_CHAIN = 0, 1, 2

-- The fields of an item by name. If another worker id has claimed the run, the item has {epoch,
-- that id} instead of the epoch.
local function read_settlement(item, claimed_by)
  local s, kind = {}, item[3]
  if kind == FINISH then
    s.key, s.epoch, s.kind, s.state, s.ttl, s.tail, s.event, s.purpose, s.has_progress, s.is_stored, s.letter = unpack(item)
  elseif kind == RESCHEDULE then
    s.key, s.epoch, s.kind, s.is_relative, s.ms, s.attempt, s.name, s.call, s.same_submission, s.is_stored, s.state, s.tail, s.event,
      s.failure, s.error = unpack(item)
  elseif kind == REQUEUE then
    s.key, s.epoch, s.kind, s.delay, s.has_begun = unpack(item)
  elseif kind == BLOCKED then
    s.key, s.epoch, s.kind, s.taken, s.settlement = unpack(item)
  elseif kind == HOLD then
    s.key, s.epoch, s.kind, s.rule = unpack(item)
  else
    s.key, s.epoch, s.kind, s.only_if_known = unpack(item)
  end
  s.owner = claimed_by
  if type(s.epoch) == 'table' then s.epoch, s.owner = unpack(s.epoch) end
  return s
end
