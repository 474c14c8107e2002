-- What scripts share that decide whether a run may begin; needs records, moves and ending.
local LOST_RUN, GO, PUT_OFF, DROP = 0, 1, 2, 3

-- The run and the task of this epoch, or nothing if it no longer counts.
local function own_run(key, epoch)
  local run_bytes, bytes = call('HGET', RUNNING, key), call('HGET', TASKS, key)
  local run = run_bytes and unpack_run(run_bytes)
  if not run or not bytes or run.epoch ~= epoch then return nil end
  return run, unpack_task(bytes), bytes
end

-- The same for every delivery of one submission or one attempt (it is redelivered, woken in a line or handed back), and
-- another for the next: whatever is scheduled anew has a new due time.
local function submission_name(key, task)
  return string.format('%.0f %.0f %.3f ', task.generation, task.attempt, task.due) .. key
end

-- Ends the run; the task waits until `due`. If a cancel was asked for meanwhile, it ends instead.
local function put_off(key, run, task, bytes, due, ttl, cancelled_tail, cancelled_event)
  end_run(key, run, false)
  leave_line(key)
  if has_flag(run, CANCEL_ASKED) then
    return finish(key, 5, run.epoch, run.started, server_ms(), bytes, ttl, cancelled_tail, cancelled_event)
  end
  task.due = due
  to_queue(key, task)
  call('HSET', TASKS, key, pack_task(task))
  call('HDEL', PROGRESS, key)
  publish(key, waiting_event(task))
end
