-- The items of settle. Their fields have the same order in ledger/settlements.py; a test compares
-- the two.
-- uses: nothing

-- The fields of an item by name. If another worker id has claimed the run, the item has {epoch,
-- that id} instead of the epoch.
local function read_settlement(item, claimed_by)
  local s, kind = {}, item[$FinishItem.kind]
  if kind == FINISH then
    $LetterItem(s.*) = unpack(item)
  elseif kind == RESCHEDULE then
    $RescheduleItem(s.*) = unpack(item)
  elseif kind == REQUEUE then
    $RequeueItem(s.*) = unpack(item)
  elseif kind == BLOCKED then
    $BlockedItem(s.*) = unpack(item)
  elseif kind == HOLD then
    $HoldItem(s.*) = unpack(item)
  else
    $UnknownItem(s.*) = unpack(item)
  end
  s.owner = claimed_by
  if type(s.epoch) == 'table' then s.epoch, s.owner = unpack(s.epoch) end
  return s
end
