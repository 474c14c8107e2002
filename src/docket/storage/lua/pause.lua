-- Stores a pause. A pause that is being resumed is in force again.
-- ARGV[2]: msgpack {id of the rule, the rule, most pauses, most bytes of all pauses}.
-- Returns: 1 stored, 2 it was being resumed, 0 it was in force, -1 there are too many; the epoch at
--   which it was stored, as text; number of tasks that it holds. A run of a higher epoch was
--   claimed after the pause.
-- uses: keys, claims, holds
local id, rule, most, most_bytes = unpack(cmsgpack.unpack(ARGV[2]))
local _, now_us = server_ms()
permit_when_full()
local known = call('HGET', PAUSES, id)
local held = call('ZCARD', HELD_TASKS .. segment(id))
if known and string.sub(known, 1, 1) == PAUSED then return {0, string.match(known, '^%a(%d+)') or '0', held} end
local rules, size = all_rules()
if not known and (#rules >= most or size + #rule > most_bytes) then return {-1, '0', 0} end
local since = string.format('%.0f', next_epochs(1, now_us))
call('HSET', PAUSES, id, PAUSED .. since .. ' ' .. rule)
rules_changed()
return {known and 2 or 1, since, held}
