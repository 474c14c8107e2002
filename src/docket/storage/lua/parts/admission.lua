-- Shared by the scripts that decide whether a run may begin.
-- uses: keys, records, placement, limit_slots, removal, endings
local LOST_RUN, ADMIT, DELAY, DROP = 0, 1, 2, 3

-- The run and the task of this epoch, or nil if the run no longer counts.
local function own_run(key, epoch)
  local run_bytes, bytes = call('HGET', RUNNING, key), call('HGET', TASKS, key)
  local run = run_bytes and unpack_run(run_bytes)
  if not run or not bytes or run.epoch ~= epoch then return nil end
  return run, unpack_task(bytes), bytes
end

-- The name stays the same for every delivery of one submission (redelivered, delayed, woken or
-- requeued). The next submission has another name.
local function submission_name(key, task)
  return string.format('%.0f %.0f ', task.generation, task.submission) .. key
end

-- The state of a debounce expires this long after its last use. If all workers are absent for
-- longer, the leading submission waits once more.
local DEBOUNCE_SPARE_MS = 600000

-- Whether the unfinished task of that key is this submission.
local function is_current(submission)
  local key = string.match(submission, '^%d+ %d+ (.*)$')
  local bytes = key and call('HGET', TASKS, key)
  return bytes and submission_name(key, unpack_task(bytes)) == submission
end

-- Marks a submission in the state of a debounce. Each call also checks a few other marks and
-- deletes those of finished tasks, so that the state stays small.
local function mark_submission(state, mark, submission)
  for _, field in ipairs(call('HRANDFIELD', state, 3)) do
    local other = string.match(field, '^%a+ (%d+ %d+ .*)$')
    if other and not is_current(other) then call('HDEL', state, field) end
  end
  call('HSET', state, mark .. ' ' .. submission, 1)
  call('PEXPIRE', state, math.max(call('PTTL', state), DEBOUNCE_SPARE_MS))
end

-- The mark is in the run record: if the run is lost, the limits do not treat the next run as a
-- newcomer.
local function admit(key, run)
  if has_flag(run, ADMITTED) then return end
  run.flags = run.flags + ADMITTED
  call('HSET', RUNNING, key, pack_run(run))
end

-- A cooldown window names the run that it admitted last. Only that run may close the window again.
local function close_window(window, epoch)
  if string.match(call('GET', window) or '', '^%d+ (%d+) ') == string.format('%.0f', epoch) then call('DEL', window) end
end

-- Gives back what a run took from its limits, because another limit did not admit the run. `taken`
-- is a list of {kind, key, submission}.
local function give_back(taken, epoch, comes_back)
  local RATE, COOLDOWN = 1, 2
  for _, t in ipairs(taken) do
    local kind, counter, submission = t[1], t[2], t[3]
    if kind == RATE then
      call('ZREM', counter, submission)
    elseif kind == COOLDOWN then
      close_window(counter, epoch)
    elseif comes_back then
      mark_submission(counter, 'again', submission)
    end
  end
end

-- Notes what delayed a task, for `why`. The note counts while the task is
-- due at `at`, and expires by itself. `most` and `ms` are numbers of the
-- limit. A docket that keeps nothing (`keep_ms` is 0) keeps no notes.
local function note_delay(keep_ms, key, kind, at, most, ms, limit)
  if keep_ms <= 0 then return end
  local ttl = math.max(math.ceil(at - server_ms()), 0) + 60000
  call('SET', DELAYS .. segment(key), string.format('%s %.0f %.0f %.0f ', kind, at, most, ms) .. limit, 'PX', ttl)
end

-- Notes that a limit is in effect, for people who look (docs/design/limits.md). `most` and `ms` are
-- its numbers.
local function note_window(now, limit, most, ms, ends)
  local MOST_WINDOWS, SPARE_MS = 1000, 60000
  local member = string.format('%.0f %.0f ', most, ms) .. string.sub(limit, #P + 1)
  if call('ZADD', WINDOWS, ends, member) == 1 and call('ZCARD', WINDOWS) > MOST_WINDOWS then
    call('ZREMRANGEBYSCORE', WINDOWS, '-inf', now)
    if call('ZCARD', WINDOWS) > MOST_WINDOWS then call('ZREM', WINDOWS, member) end
  end
  -- With some spare time, so that not every run has to extend it.
  local left = ends - now
  if call('PTTL', WINDOWS) < left then call('PEXPIRE', WINDOWS, left + SPARE_MS) end
end

-- Ends the run and schedules the task for `due`. If a cancel was requested, ends the task instead.
local function delay_run(key, run, task, bytes, due, ttl, taken)
  end_run(key, run, false)
  leave_waiters(key)
  local is_cancelled = has_flag(run, CANCEL_ASKED)
  give_back(taken, run.epoch, not is_cancelled)
  if is_cancelled then
    return finish_cancelled(key, run, (server_ms()), bytes, ttl)
  end
  task.due = due
  to_schedule(key, task)
  call('HSET', TASKS, key, pack_task(task))
  if not has_progress(task.flags) then call('HDEL', PROGRESS, key) end
  publish(key, waiting_event(task))
end
