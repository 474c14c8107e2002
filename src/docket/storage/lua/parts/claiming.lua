-- Turns delivered stream entries into run records. Entries: list of {stream, id, key or false}.

local function next_epochs(count, now_us)
  local last = tonumber(call('GET', EPOCH) or '0')
  local first = math.max(last + 1, now_us)
  call('SET', EPOCH, string.format('%.0f', first + count - 1))
  return first
end

-- A suspect runs alone among suspects: if this worker dies with it, it is to blame.
local function may_run_suspect(worker, key)
  local other = call('HGET', SUSPECTS, worker)
  if other and other ~= key then return false end
  call('HSET', SUSPECTS, worker, key)
  return true
end

local function running_event(worker_json, now)
  return '{"type":"state","state":"running","worker":' .. worker_json .. ',"started_at":' .. string.format('%.0f', now) .. '}'
end

local function claim_entries(worker, worker_json, entries)
  local now, now_us = server_ms()
  local answer = {now}
  if #entries == 0 then return answer end
  local keys = {}
  for i, e in ipairs(entries) do keys[i] = e[3] or '' end
  local tasks, runs = call('HMGET', TASKS, unpack(keys)), call('HMGET', RUNNING, unpack(keys))
  local epoch = next_epochs(#entries, now_us)
  local stale, fields = {[STREAM] = {}, [FRONT] = {}}, {}
  local event = running_event(worker_json, now)

  local function add(key, bytes, run)
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3] = key, bytes, run.epoch
  end

  for i, e in ipairs(entries) do
    local stream, id, key, bytes = e[1], e[2], e[3], tasks[i]
    local task = bytes and key and unpack_task(bytes)
    if task and task.broken then
      set_entry(task, id)
      task.place = stream == FRONT and FIRST or QUEUED
      bytes = pack_task(task)
      call('HSET', TASKS, key, bytes)
    end
    if not task or not is_at(task, stream, id) then
      table.insert(stale[stream], id)
    elseif runs[i] then
      -- Claimed before: our own claim whose answer was lost, or the group was made anew while another runs it.
      local run = unpack_run(runs[i])
      if run.worker == worker then
        add(key, bytes, run)
      else
        call('XCLAIM', stream, GROUP, run.worker, 0, id, 'JUSTID')
      end
    elseif task.recoveries >= SUSPECT_AFTER and not may_run_suspect(worker, key) then
      table.insert(stale[stream], id)
      task.due = now + 500
      to_queue(key, task)
      call('HSET', TASKS, key, pack_task(task))
    else
      local flags = (task.recoveries >= SUSPECT_AFTER and SUSPECT or 0) + (stream == FRONT and FROM_FRONT or 0)
      local run = {epoch = epoch, started = now, entry_ms = task.entry_ms, entry_seq = task.entry_seq, flags = flags,
        worker = worker, limits = ''}
      epoch = epoch + 1
      fields[#fields + 1] = key
      fields[#fields + 1] = pack_run(run)
      add(key, bytes, run)
      publish(key, event)
    end
  end
  if #fields > 0 then call('HSET', RUNNING, unpack(fields)) end
  drop_entries(STREAM, stale[STREAM])
  drop_entries(FRONT, stale[FRONT])
  return answer
end

-- Adds a stream's entries; one without our field has no key and is dropped as stale.
local function add_entries(entries, stream, raw)
  for _, e in ipairs(raw) do
    local fields = e[2]
    entries[#entries + 1] = {stream, e[1], fields and fields[1] == 'k' and fields[2] or false}
  end
end

-- Only a worker with a lease may take work: a paused one that was given up must learn it first.
local function has_lease(worker)
  return call('ZSCORE', LEASES, worker)
end
