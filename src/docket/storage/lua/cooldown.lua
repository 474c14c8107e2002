-- Lets a run begin if no window is open, and opens one.
-- ARGV[2]: msgpack {key, epoch, ttl ms, cancelled tail, cancelled event, what the run took, window, window ms}.
--   window: string, when it closes and the submission that opened it.
-- Returns: verdict (0 lost, 1 go, 3 drop), ms until the window closes, the submission that opened it.
local key, epoch, _, _, _, _, window, window_ms = unpack(cmsgpack.unpack(ARGV[2]))
local SPARE_MS = 60000
local now = server_ms()
insist()
local run, task = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
-- A retry belongs to a run that was let in.
if task.attempt > 1 then return {GO, 0, ''} end
local ours, value = submission_name(key, task), call('GET', window)
local closes, holder = string.match(value or '', '^(%d+) (.*)$')
if closes and tonumber(closes) > now then
  if holder ~= ours then return {DROP, tonumber(closes) - now, ''} end
  return {GO, 0, ours}
end
call('SET', window, string.format('%.0f ', now + window_ms) .. ours, 'PX', window_ms + SPARE_MS)
return {GO, 0, ours}
