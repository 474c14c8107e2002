-- Turns deliveries into runs. An entry is {stream, id, key or false}.
-- uses: keys, records, events, foreign, suspects, placement, limit_slots, holds

local function next_epochs(count, now_us)
  local last = tonumber(call('SET', EPOCH, string.format('%.0f', now_us + count - 1), 'GET') or '0')
  -- Not `last < now_us`: whatever else somebody has written there is not a later epoch.
  if not (last and last >= now_us and last < MOST - count) then return now_us end
  -- Two calls within one microsecond, or the clock was set back.
  call('SET', EPOCH, string.format('%.0f', last + count))
  return last + 1
end

local function running_event(worker_json, now)
  return '{"type":"state","state":"running","worker":' .. worker_json .. ',"started_at":' .. string.format('%.0f', now) .. '}'
end

-- Whether the worker has no other pending entries, and runs none of these.
local function has_nothing_else(worker, entries, runs)
  local here = {}
  for i, e in ipairs(entries) do
    local run = runs[i] and unpack_run(runs[i])
    if run and run.worker == worker then return false end
    here[e[1] .. ' ' .. e[2]] = true
  end
  for _, stream in ipairs({STREAM, FRONT}) do
    for _, p in ipairs(pending_of(worker, stream, #entries + 1)) do
      if not here[stream .. ' ' .. p[1]] then return false end
    end
  end
  return true
end

-- Puts a delivered task back: to the front stream for another worker, or, if `due` is set, to the
-- schedule until then.
local function put_back(key, task, due)
  if due then
    task.location, task.entry_ms, task.entry_seq = SCHEDULED, 0, 0
    wait_for_time(key, due)
  else
    to_front(key, task)
  end
  call('HSET', TASKS, key, pack_task(task))
end

-- Returns {server ms, 0, then per claimed task: key, task record, epoch}. If there were suspects, a
-- note follows: {whether some went to other workers (0/1), epoch of the run that runs alone in the
-- worker or 0, the entry that the worker has reserved: from the front (0/1), entry id or '', key;
-- ms for which the run stays alone}. Then, while there are pauses that compare arguments, their
-- version. `suspects`: 0 run none, 1 follow the rules, 2 the worker gives
-- up its reservation, 3 follow the rules, but other code runs in the worker's process.
local function claim_entries(worker, worker_json, entries, suspects)
  local now, now_us = server_ms()
  local answer = {now, 0}
  if #entries == 0 then return answer end
  local keys = {}
  for i, e in ipairs(entries) do keys[i] = e[3] or '' end
  local tasks, runs = call('HMGET', TASKS, unpack(keys)), call('HMGET', RUNNING, unpack(keys))
  local epoch = next_epochs(#entries, now_us)
  -- The rules that were read, or nil if there is no pause.
  local rules = call('EXISTS', PAUSES) == 1 and {} or nil
  local fields, stale, note = {}, nil, nil
  local prefix, channels = CHANNELS .. 'task/', {}
  -- Most run records end like this.
  local plain_end = struct.pack(RUN_END, 0, #worker, worker, 0)
  local full_claim
  -- A single suspect runs alone in the worker: the other entries go back.
  local has_single_suspect = false

  local function begin_run(key, bytes, entry_ms, entry_seq, flags)
    local n, m = #answer, #fields
    fields[m + 1] = key
    local run_end = flags == 0 and plain_end or struct.pack(RUN_END, flags, #worker, worker, 0)
    fields[m + 2] = struct.pack(RUN_START, epoch, now, entry_ms, entry_seq) .. run_end
    answer[n + 1], answer[n + 2], answer[n + 3] = key, bytes, epoch
    epoch = epoch + 1
    channels[#channels + 1] = prefix .. key
  end

  -- The full claim also handles broken, stale, already claimed, held and suspect entries. Few calls
  -- need it, so the server makes these functions only then.
  local function make_full_claim()
    --- parts
    stale = {[STREAM] = {}, [FRONT] = {}}

    local function is_idle()
      return suspects ~= 3 and #fields == 0 and has_nothing_else(worker, entries, runs)
    end

    -- Decides about a suspect. Returns the flag of its run, or nil if it does not run now.
    local function decide(stream, id, key, task)
      local verdict = suspects == 0 and ELSEWHERE or judge_suspect(key, worker, is_idle, suspects == 2)
      note = note or {0, 0, 0, '', '', 0}
      if verdict == RESERVE then
        call('ZREM', OFFERS, worker)
        note[3], note[4], note[5] = stream == FRONT and 1 or 0, id, key
        return nil
      elseif verdict == ELSEWHERE or verdict == LATER then
        table.insert(stale[stream], id)
        -- No two tasks get the same delay.
        put_back(key, task, verdict == LATER and now + 100 + (now_us + 97 * #stale[stream]) % 400)
        if verdict == ELSEWHERE then note[1] = 1 end
        return nil
      elseif verdict == RUN_ALONE then
        call('ZREM', OFFERS, worker)
        has_single_suspect, note[2], note[6] = true, epoch, alone_ms(key)
      end
      return SUSPECT
    end

    return function(stream, id, key, bytes, run_bytes)
      local task = bytes and key and unpack_task(bytes)
      if task and task.broken then
        set_entry(task, id)
        task.location = stream == FRONT and IN_FRONT or IN_STREAM
        bytes = pack_task(task)
        call('HSET', TASKS, key, bytes)
      end
      local run = run_bytes and unpack_run(run_bytes)
      if run_bytes and not run then note_damaged_run() end
      local rule = rules and task and holding_rule(task.name, stream == FRONT, rules)
      if not task or not is_at(task, stream, id) then
        if not key or key == '' then keep_foreign(stream, id) end
        table.insert(stale[stream], id)
      elseif run then
        -- Already claimed: the answer to this worker's claim was lost, or the group was created
        -- again while another worker runs the task.
        if run.worker == worker then
          local n = #answer
          answer[n + 1], answer[n + 2], answer[n + 3] = key, bytes, run.epoch
        else
          call('XCLAIM', stream, GROUP, run.worker, 0, id, 'JUSTID')
        end
      elseif rule then
        table.insert(stale[stream], id)
        if losses_of(task) >= SUSPECT_AFTER then clear_reservation(key) end
        leave_waiters(key)
        to_held(key, task, rule, stream == FRONT)
        call('HSET', TASKS, key, pack_task(task))
      elseif has_single_suspect then
        table.insert(stale[stream], id)
        put_back(key, task)
      else
        local flag = losses_of(task) < SUSPECT_AFTER and 0 or decide(stream, id, key, task)
        if flag then begin_run(key, bytes, task.entry_ms, task.entry_seq, flag + (stream == FRONT and FROM_FRONT or 0)) end
      end
    end
  end

  for i, e in ipairs(entries) do
    local stream, id, key, bytes = e[1], e[2], e[3], tasks[i]
    local location, losses, due, ms, seq, length, _
    if bytes and key and not runs[i] and #bytes >= TASK_HEADER_SIZE then
      _, location, _, _, losses, _, _, due, ms, seq, length = struct.unpack(TASK_HEADER, bytes)
    end
    if location == IN_STREAM and stream == STREAM and losses == 0 and not rules and not has_single_suspect and due > -MOST and due < MOST
      and TASK_HEADER_SIZE + length <= #bytes and id == id_text(ms, seq) then
      begin_run(key, bytes, ms, seq, 0)
    else
      full_claim = full_claim or make_full_claim()
      full_claim(stream, id, key, bytes, runs[i])
    end
  end
  if #fields > 0 then
    call('HSET', RUNNING, unpack(fields))
    local found, event = heard(channels), nil
    for i, channel in ipairs(channels) do
      if not found or found[i] then
        event = event or running_event(worker_json, now)
        call('PUBLISH', channel, event)
      end
    end
  end
  if stale then
    --- parts
    drop_entries(STREAM, stale[STREAM])
    drop_entries(FRONT, stale[FRONT])
    answer[#answer + 1] = note
  end
  if rules then answer[#answer + 1] = call('HGET', PAUSES, ARGUMENTS) or nil end
  return answer
end

-- Adds the entries of a stream. A foreign entry gets no key: the claim sets it aside and drops it
-- as stale.
local function add_entries(entries, stream, raw)
  for _, e in ipairs(raw) do
    local fields = e[2]
    entries[#entries + 1] = {stream, e[1], fields and fields[1] == 'k' and fields[2] or false}
  end
end

-- Adds up to `most` undelivered entries of a stream, which are delivered to the worker now.
local function read_from(stream, worker, most, entries)
  local reply = redis.pcall('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', most, 'STREAMS', stream, '>')
  if type(reply) == 'table' and reply.err then
    --- parts
    if not string.find(reply.err, 'NOGROUP', 1, true) then error(reply.err) end
    ensure_groups()
    reply = call('XREADGROUP', 'GROUP', GROUP, worker, 'COUNT', most, 'STREAMS', stream, '>')
  end
  if reply and reply[1] then add_entries(entries, stream, reply[1][2]) end
  return entries
end

-- Reads up to `count` ready entries, those of the front stream first if `reads_front` is 1.
-- XREADGROUP with COUNT 0 would read all entries.
local function read_ready(worker, count, reads_front)
  local entries = {}
  if count > 0 and reads_front == 1 and call('XLEN', FRONT) > 0 then read_from(FRONT, worker, count, entries) end
  if #entries < count then read_from(STREAM, worker, count - #entries, entries) end
  return entries
end

-- Only a worker with a lease may take work: a worker that was declared dead while it was paused
-- must notice that first.
local function has_lease(worker)
  return call('ZSCORE', LEASES, worker)
end
