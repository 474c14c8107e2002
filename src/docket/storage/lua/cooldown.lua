-- Admits a run if no window is open, and opens one.
-- ARGV[2]: msgpack {key, epoch, ttl ms, what the run took from other limits, window, window ms}.
--   window: key of a string: the time at which the window closes, the epoch of the run that it
--     admitted last, and the submission that opened it.
-- Returns: verdict (0 lost, 1 admit, 3 drop), ms until the window closes, the submission that
--   opened it if the run may give it back.
-- uses: keys, records, admission
local key, epoch, _, _, window, window_ms = unpack(cmsgpack.unpack(ARGV[2]))
local SPARE_MS = 60000
local now = server_ms()
permit_when_full()
local run, task = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
-- A retry belongs to a run that was admitted.
if task.attempt > 1 then return {ADMIT, 0, ''} end
local ours = submission_name(key, task)
local closes, _, holder = string.match(call('GET', window) or '', '^(%d+) (%d+) (.*)$')
local left = number_in(closes, now) - now
-- If the window would stay open for longer than `window_ms`, the server's clock was set back since
-- it was opened: ignore it.
local is_open = left > 0 and left <= window_ms
-- If the body may have begun in an earlier run, the task is not dropped, and nothing is given back.
local is_newcomer = not was_admitted(task)
if is_open and holder ~= ours then
  if is_newcomer then return {DROP, left, ''} end
  return {ADMIT, 0, ''}
end
closes = is_open and tonumber(closes) or now + window_ms
call('SET', window, string.format('%.0f %.0f ', closes, epoch) .. ours, 'PX', closes - now + SPARE_MS)
note_window(now, window, 1, window_ms, closes)
admit(key, run)
return {ADMIT, 0, is_newcomer and ours or ''}
