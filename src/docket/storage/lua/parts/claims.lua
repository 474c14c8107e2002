-- Turns deliveries into runs. Entries are three lists: `ids`, `keys`, and `fronts`, which is true
-- at the positions of entries of the front stream. An entry that docket has not written has an
-- empty key, and is true in a fourth one, `foreign`, which is nil if there is no such entry.
-- uses: keys, records, entries, events, foreign, suspects, placement, limit_slots, holds

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
  for i, id in ipairs(entries.ids) do
    local run = runs[i] and unpack_run(runs[i])
    if run and run.worker == worker then return false end
    here[(entries.fronts[i] and FRONT or STREAM) .. ' ' .. id] = true
  end
  for _, stream in ipairs({STREAM, FRONT}) do
    for _, p in ipairs(pending_of(worker, stream, #entries.ids + 1)) do
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
  local ids, keys, fronts, foreign = entries.ids, entries.keys, entries.fronts, entries.foreign
  local count = #ids
  if count == 0 then return answer end
  local tasks, runs = call('HMGET', TASKS, unpack(keys)), call('HMGET', RUNNING, unpack(keys))
  local epoch = next_epochs(count, now_us)
  -- The rules that were read, or nil if there is no pause.
  local rules = call('EXISTS', PAUSES) == 1 and {} or nil
  local fields, stale, note = {}, nil, nil
  -- Most run records differ only in the epoch and the entry. The entry looks as in the task record.
  local pack, started = struct.pack, struct.pack('<d', now)
  local plain_end = pack($RUN_END{flags = 0, worker = worker, limits_size = 0})
  local full_claim
  -- A single suspect runs alone in the worker: the other entries go back.
  local has_single_suspect = false

  local function begin_run(key, bytes, flags)
    local n, m = #answer, #fields
    fields[m + 1] = key
    fields[m + 2] = pack('<d', epoch) .. started .. string.sub(bytes, TASK_ENTRY_MS_AT, TASK_ENTRY_SEQ_END) .. pack($RUN_END{flags = flags, worker = worker, limits_size = 0})
    answer[n + 1], answer[n + 2], answer[n + 3] = key, bytes, epoch
    epoch = epoch + 1
  end

  -- The full claim also handles broken, stale, already claimed, held and suspect entries. Few calls
  -- need it, so the server makes these functions only then.
  -- twin of: plain claim (claims.lua)
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
        if flag then begin_run(key, bytes, flag + (stream == FRONT and FROM_FRONT or 0)) end
      end
    end
  end

  -- `find` makes no string, so it costs less than a comparison with `sub`.
  local byte, sub, find, read, number = string.byte, string.sub, string.find, struct.unpack, tonumber
  local n, m = #answer, 0
  -- The milliseconds of the last entry, and how its id begins.
  local last_ms, beginning, digits_at = nil, nil, nil
  local may_be_plain = not rules and not foreign
  for i = 1, count do
    local id, key, bytes = ids[i], keys[i], tasks[i]
    local is_plain = false
    if may_be_plain and bytes and not runs[i] and not fronts[i] and #bytes >= TASK_HEADER_SIZE and byte(bytes, TASK_LOCATION_AT) == IN_STREAM
      and byte(bytes, TASK_LOSSES_AT) == 0 then
      local $TASK_TIMES(due, entry_ms = ms, entry_seq = seq, name_length = length) = read(TASK_TIMES, bytes, TASK_DUE_AT)
      if ms ~= last_ms and ms >= 0 and ms < MOST then
        last_ms, beginning = ms, string.format('%.0f-', ms)
        digits_at = #beginning + 1
      end
      is_plain = ms == last_ms and due > -MOST and due < MOST and TASK_HEADER_SIZE + length <= #bytes
        and find(id, beginning, 1, true) == 1 and number(sub(id, digits_at)) == seq
    end
    -- plain claim, twin of: make_full_claim (claims.lua)
    -- plain claim, twin of: claim_oldest (direct_delivery.lua)
    if is_plain then
      fields[m + 1], fields[m + 2] = key, pack('<d', epoch) .. started .. sub(bytes, TASK_ENTRY_MS_AT, TASK_ENTRY_SEQ_END) .. plain_end
      answer[n + 1], answer[n + 2], answer[n + 3] = key, bytes, epoch
      n, m, epoch = n + 3, m + 2, epoch + 1
    else
      full_claim = full_claim or make_full_claim()
      full_claim(fronts[i] and FRONT or STREAM, id, not (foreign and foreign[i]) and key, bytes, runs[i])
      n, m, may_be_plain = #answer, #fields, may_be_plain and not has_single_suspect
    end
  end
  if m > 0 then
    call('HSET', RUNNING, unpack(fields))
    local found, event = heard(fields, 2), nil
    if found ~= false then
      for i = 1, m, 2 do
        if not found or found[(i + 1) / 2] then
          event = event or running_event(worker_json, now)
          publish(fields[i], event)
        end
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

local function no_entries()
  return {ids = {}, keys = {}, fronts = {}}
end

-- Adds an entry. A foreign entry gets no key: the claim sets it aside and drops it as stale.
local function add_delivered(entries, stream, id, key)
  local n = #entries.ids + 1
  entries.ids[n], entries.keys[n], entries.fronts[n] = id, key or '', stream == FRONT or nil
  if not key then
    entries.foreign = entries.foreign or {}
    entries.foreign[n] = true
  end
end

-- Adds the entries of a stream.
-- twin of: entry_key (entries.lua)
local function add_entries(entries, stream, raw)
  local ids, keys, n = entries.ids, entries.keys, #entries.ids
  -- Neighbours often share the field of a short entry, and so the beginning of their keys. The
  -- table `hex` is made when it is needed.
  local byte, are_many, hex, field, beginning = string.byte, #raw >= MANY_KEYS, nil, nil, nil
  for i = 1, #raw do
    local e = raw[i]
    local fields = e[2]
    local name, key = fields[1], fields[2]
    if name ~= 'k' then
      if are_many and name ~= field and is_short(name, key) then
        hex, field, beginning = hex or digits_of_bytes(), name, string.sub(name, 2)
      end
      if name == field and #key == KEY_END_SIZE then
        -- The same as entry_key, which costs less for a few entries.
        local a, b, c, d, f, g, h, j, k, l, m, o = byte(key, 1, KEY_END_SIZE)
        key = beginning .. hex[a] .. hex[b] .. '-' .. hex[c] .. hex[d] .. '-' .. hex[f] .. hex[g] .. '-' .. hex[h] .. hex[j]
          .. hex[k] .. hex[l] .. hex[m] .. hex[o]
      else
        key = entry_key(fields)
      end
    end
    if stream == STREAM and key then
      n = n + 1
      ids[n], keys[n] = e[1], key
    else
      add_delivered(entries, stream, e[1], key)
      n = #ids
    end
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
-- twin of: reading with functions (take.lua)
local function read_ready(worker, count, reads_front)
  local entries = no_entries()
  if count > 0 and reads_front == 1 and call('XLEN', FRONT) > 0 then read_from(FRONT, worker, count, entries) end
  if #entries.ids < count then read_from(STREAM, worker, count - #entries.ids, entries) end
  return entries
end

-- Only a worker with a lease may take work: a worker that was declared dead while it was paused
-- must notice that first.
local function has_lease(worker)
  return call('ZSCORE', LEASES, worker)
end
