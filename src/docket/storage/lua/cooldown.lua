-- Lets a run begin if no window is open, and opens one.
-- KEYS: all. ARGV[2]: msgpack {key, epoch, ttl ms, cancelled tail, cancelled event, window, window ms}.
--   window: string, the submission that opened it; gone when the window closes.
-- Returns: verdict (0 lost, 1 go, 3 drop), ms until the window closes, what to give back.
--- include keys
--- include records
--- include moves
--- include ending
--- include admitting
local key, epoch, _, _, _, window, window_ms = unpack(cmsgpack.unpack(ARGV[2]))
insist()
local run, task = own_run(key, epoch)
if not run then return {LOST_RUN, 0, ''} end
-- A retry belongs to a run that was let in.
if task.attempt > 1 then return {GO, 0, ''} end
local ours, holder = submission(key, task), call('GET', window)
if holder and holder ~= ours then return {DROP, call('PTTL', window), ''} end
if not holder then call('SET', window, ours, 'PX', window_ms) end
return {GO, 0, ours}
