-- Removes a task from its location, and ends its run.
-- uses: locations, keys, records, suspects, placement, limit_slots

-- Whether the id is the lease of a run that was claimed by key, outside of a worker.
local function is_manual(worker)
  return string.find(worker, '~hand%-%x+$')
end

local function has_manual_lease(worker)
  return tonumber(call('ZSCORE', MANUAL_LEASES, worker) or '0') > (real_ms())
end

local function may_live(worker)
  if is_manual(worker) then return has_manual_lease(worker) end
  return call('ZSCORE', LEASES, worker) or call('SISMEMBER', DYING, worker) == 1
end

-- Deletes the run. With `keep_slots` a run whose body may still be running keeps its limits' slots.
local function end_run(key, run, keep_slots)
  call('HDEL', RUNNING, key)
  if has_flag(run, SUSPECT) then
    --- parts
    stop_suspect(key, run.worker)
  end
  drop_entries(stream_of_run(run), {entry_id(run)})
  if keep_slots and may_live(run.worker) then
    if run.limits ~= '' then call('HSET', REPLACED_RUNS, string.format('%.0f', run.epoch), pack_run(run)) end
  else
    release_slots(run)
  end
end

-- Removes a task from its location. A run of it loses its epoch.
local function remove_from_location(key, task)
  local run_bytes = call('HGET', RUNNING, key)
  local run = run_bytes and unpack_run(run_bytes)
  if run_bytes and not run then
    call('HDEL', RUNNING, key)
    note_damaged_run()
  end
  if run then
    end_run(key, run, true)
    call('HDEL', PROGRESS, key)
  else
    leave_location(key, task)
  end
  if losses_of(task) >= SUSPECT_AFTER then
    --- parts
    leave_group(key)
  end
  leave_waiters(key)
end
