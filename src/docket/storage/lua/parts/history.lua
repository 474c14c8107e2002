-- The history of finished runs (docs/design/history.md). ledger/history.py reads the entries; a
-- test compares the two.
-- uses: keys, records, settlements

local MOST_ENTRIES = 10000
local LONGEST_NAMED, LONGEST_ERROR = 512, 500
-- How long entries live: failures at most, and all others.
local FAILURES_KEPT_MS, SAMPLES_KEPT_MS = 604800000, 86400000

-- How long failures live if letters live for `keep_ms` (0: they are not kept).
local function failures_kept_ms(keep_ms)
  return keep_ms > 0 and math.min(keep_ms, FAILURES_KEPT_MS) or SAMPLES_KEPT_MS
end

-- A text of at most so many bytes. A character at the end is not cut in two.
local function cut(text, most)
  if #text <= most then return text end
  return string.gsub(string.sub(text, 1, most - 3), '[\192-\255][\128-\191]*$', '') .. '…'
end

-- The error in the event of an ending: the event itself, or the settlement that has it.
local function error_in(ending)
  local event = ending
  if type(ending) == 'table' then
    local s = read_settlement(ending)
    if s.kind == BLOCKED then s = read_settlement(s.settlement) end
    event = s.event or s.error and '{"error":' .. s.error .. '}'
  end
  local is_read, facts = pcall(cjson.decode, event or '')
  local text = is_read and type(facts) == 'table' and facts.error
  return type(text) == 'string' and text or ''
end

-- Whether the text of an error may be kept: not if letters are off, and not if the function keeps
-- them for a shorter time.
local function keeps_text(name, keep_ms)
  local declared = keep_ms > 0 and tonumber(call('HGET', KEEP_FAILURES, name) or keep_ms) or 0
  return declared > 0 and declared >= failures_kept_ms(keep_ms)
end

-- `f` is {ending kind, key, task record, run or its record or nil, run time or -1, the event or the
-- settlement, how long letters are kept in ms}.
local function add_entry(stream, ms, f, now, text, left_out)
  local kind, key, task_bytes, run, seconds = unpack(f, 1, 5)
  local task = unpack_task(task_bytes)
  if type(run) == 'string' then run = unpack_run(run) end
  local entry = {ENTRY_VERSION, kind, now, cut(key, LONGEST_NAMED), cut(task.name, LONGEST_NAMED), run and run.worker or '',
    task.attempt, run and run.epoch or 0, task.due, run and run.started or 0, seconds, text, left_out}
  call('XADD', stream, 'MAXLEN', '~', MOST_ENTRIES, '*', ENTRY_FIELD, cmsgpack.pack(entry))
  call('PEXPIRE', stream, string.format('%.0f', ms))
end

-- Somebody else may have written to the key. Data of another
-- type is deleted, so that the next entry is written.
local function add_entry_safely(stream, ...)
  local is_added, problem = pcall(add_entry, stream, ...)
  if not is_added then
    drop_unless(stream, 'stream')
    redis.log(redis.LOG_WARNING, 'docket: a run is missing in the history: ' .. tostring(type(problem) == 'table' and problem.err or problem))
  end
end

-- Writes entries for these endings of one function while there is room, the left-out endings of
-- this minute in each. Returns how many failures and samples have used up room.
local function add_to_history(finished, now, failure_room, sample_room, failures_left_out, samples_left_out)
  local failures, samples = 0, 0
  for _, f in ipairs(finished) do
    local keep_ms = f[7]
    if not FAILURE_KINDS[f[1]] then
      if samples < sample_room then
        samples = samples + 1
        add_entry_safely(HISTORY_SAMPLES, SAMPLES_KEPT_MS, f, now, '', samples_left_out)
      end
    elseif failures < failure_room then
      failures = failures + 1
      local text = keeps_text(unpack_task(f[3]).name, keep_ms) and cut(error_in(f[6]), LONGEST_ERROR) or ''
      add_entry_safely(HISTORY_FAILURES, failures_kept_ms(keep_ms), f, now, text, failures_left_out)
    end
  end
  return failures, samples
end
