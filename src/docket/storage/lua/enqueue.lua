-- Writes down a batch of calls: each goes to the stream if it is due, else to the queue.
-- KEYS: all. ARGV[2]: msgpack list of {key, due ms (0 = now), mode, function name, call, attempt}.
--   mode bits: 1 the key is fresh (no look-up needed), 2 replace, 4 due now even if the caller's clock is ahead.
-- Returns: server ms, then per call: 1 scheduled, 2 scheduled in place of another or 0 already there, generation, due ms, place.
--- include keys
--- include records
--- include moves
local FRESH, REPLACE, NOW = 1, 2, 4
local calls = cmsgpack.unpack(ARGV[2])
local now = server_ms()

local function has(mode, bit_value) return math.floor(mode / bit_value) % 2 == 1 end

-- A client may make the group itself, at '$': it must exist before the first entry.
if call('EXISTS', STREAM) == 0 then ensure_groups() end

local known, looked_up, finished = {}, {}, {}
for _, c in ipairs(calls) do
  if not has(c[3], FRESH) then looked_up[#looked_up + 1] = c[1] end
end
if #looked_up > 0 then
  local found = call('HMGET', TASKS, unpack(looked_up))
  for i, key in ipairs(looked_up) do known[key] = found[i] or nil end
end

local answer, writes, order = {now}, {}, {}
for _, c in ipairs(calls) do
  local key, due, mode, name, body, attempt = c[1], c[2], c[3], c[4], c[5], c[6]
  local before = known[key] and unpack_task(known[key])
  if before and not has(mode, REPLACE) then
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] =
      0, before.generation, before.due, before.place
  else
    if due <= 0 or (has(mode, NOW) and due > now) then due = now end
    local task = {attempt = attempt, recoveries = 0, generation = 1, due = due, entry_ms = 0,
      entry_seq = 0, name = name, call = body}
    if before then
      task.generation = before.generation + 1
      -- Read anew: an earlier call of this batch may have woken it.
      withdraw(key, writes[key] and before or unpack_task(call('HGET', TASKS, key)))
    elseif not has(mode, FRESH) then
      task.generation = finished_generation(call('GETRANGE', RUNS .. segment(key), 0, FINISHED_PEEK)) + 1
    end
    place(key, task, now)
    if not writes[key] then order[#order + 1] = key end
    known[key] = pack_task(task)
    writes[key] = known[key]
    if not has(mode, FRESH) then
      finished[#finished + 1] = RUNS .. segment(key)
      publish(key, waiting_event(task))
    end
    local n = #answer
    answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] =
      before and 2 or 1, task.generation, task.due, task.place
  end
end

if #order > 0 then
  local fields = {}
  for _, key in ipairs(order) do
    fields[#fields + 1] = key
    fields[#fields + 1] = writes[key]
  end
  call('HSET', TASKS, unpack(fields))
end
if #finished > 0 then call('DEL', unpack(finished)) end
return answer
