-- Task, run and finished records (docs/design/key-layout.md). storage/records.py packs the same
-- bytes; a test compares the two.
-- uses: keys

local function has_progress(flags)
  return math.floor(flags / HAS_PROGRESS) % 2 == 1
end

local function is_revived(flags)
  return math.floor(flags / REVIVED) % 2 == 1
end

-- Bytes that are not a record become a task without a call: no script fails, and the worker that
-- claims the task buries it.
local function broken_task()
  return {version = 1, location = IN_STREAM, flags = 0, attempt = 1, losses = 0, generation = 1, submission = 1, due = 0,
    entry_ms = 0, entry_seq = 0, name = '', call = '', broken = true}
end

local function unpack_task(bytes)
  if #bytes < TASK_HEADER_SIZE then return broken_task() end
  local task = {}
  local name_length
  $TASK_HEADER(task.*, name_length = name_length) = struct.unpack(TASK_HEADER, bytes)
  local sound = task.entry_ms >= 0 and task.entry_ms < MOST and task.due > -MOST and task.due < MOST
  if not sound or TASK_HEADER_SIZE + name_length > #bytes then return broken_task() end
  task.name = string.sub(bytes, TASK_HEADER_SIZE + 1, TASK_HEADER_SIZE + name_length)
  task.call = string.sub(bytes, TASK_HEADER_SIZE + name_length + 1)
  return task
end

-- A record of another release keeps its version. All versions share this header, so that any
-- release can move any record.
local function pack_task(task)
  return struct.pack($TASK_HEADER{task.*}) .. task.name .. task.call
end

-- The losses of a task record, and its stream entry.
local function losses_and_entry(bytes)
  local $TASK_HEADER(losses, entry_ms, entry_seq) = struct.unpack(TASK_HEADER, bytes)
  return losses, entry_ms, entry_seq
end

local function flags_of(bytes)
  return string.byte(bytes, TASK_FLAGS_AT) or 0
end

-- The task is no longer one that was retried after it had failed for good.
local function forget_deaths(key, task_bytes)
  if is_revived(flags_of(task_bytes)) then call('HDEL', DEATHS, key) end
end

-- How many workers died or lost their lease while they ran the task.
local function losses_of(task)
  return task.losses % BEGUN
end

-- A location that only a newer release knows: the workers of that release handle the task, and no
-- script here changes its record.
local function is_unknown_location(task)
  return task.location > LAST_LOCATION
end

-- The id of a stream entry. Entries of one batch often have the same milliseconds, and the server
-- needs thousands of instructions to print a large number.
local printed_ms, printed = nil, nil

-- twin of: drop_run_entries (placement.lua)
local function id_text(ms, seq)
  if ms ~= printed_ms then printed_ms, printed = ms, string.format('%.0f-', ms) end
  return printed .. string.format('%d', seq)
end

local function entry_id(record)
  if record.entry_ms == 0 then return nil end
  return id_text(record.entry_ms, record.entry_seq)
end

local function set_entry(record, id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  record.entry_ms, record.entry_seq = tonumber(ms), tonumber(seq)
end

-- Nil for bytes that are not a run record: then the task has no run that counts
-- (docs/design/damaged-data.md).
local function unpack_run(bytes)
  local size = #bytes
  if size < RUN_WORKER_AT + 3 then return nil end
  local limits_at = RUN_WORKER_AT + 2 + struct.unpack('<H', bytes, RUN_WORKER_AT)
  if limits_at + 1 > size or limits_at + 1 + struct.unpack('<H', bytes, limits_at) ~= size then return nil end
  local run = {}
  $RUN(run.*) = struct.unpack(RUN, bytes)
  local is_sound = run.epoch > 0 and run.epoch < MOST and run.started > -MOST and run.started < MOST and run.entry_ms >= 0
    and run.entry_ms < MOST
  return is_sound and run or nil
end

-- A run record is damaged: no run owns the limits' slots that its run had. The next sweep frees
-- them.
local function note_damaged_run()
  call('HSET', SWEEP_CURSOR, 'slots', '1')
end

local function pack_run(run)
  return struct.pack($RUN{run.*})
end

local function has_flag(run, flag)
  return math.floor(run.flags / flag) % 2 == 1
end

local function was_admitted(task)
  return math.floor(task.flags / WAS_ADMITTED) % 2 == 1
end

-- The run is over, and the task waits for its next run, which keeps the admission.
local function remember_admission(task, run)
  if has_flag(run, ADMITTED) and not was_admitted(task) then task.flags = task.flags + WAS_ADMITTED end
end

local function stream_of_run(run)
  return has_flag(run, FROM_FRONT) and FRONT or STREAM
end

local function stream_of_task(task)
  return task.location == IN_FRONT and FRONT or STREAM
end

-- An entry is live only if the task record names it.
local function is_at(task, stream, id)
  return (task.location == IN_STREAM or task.location == IN_FRONT) and stream_of_task(task) == stream and entry_id(task) == id
end

-- The size of a progress that is empty.
local NO_PROGRESS = '\0\0\0\0'

local function pack_finished(state, epoch, started, completed, task_bytes, progress, tail)
  local size = progress == '' and NO_PROGRESS or struct.pack('<I4', #progress)
  return struct.pack($FINISHED_HEADER{*, version = 1, task_size = #task_bytes}) .. task_bytes .. size .. progress .. tail
end

-- The task record inside a finished record.
local function finished_task(bytes)
  if #bytes < FINISHED_HEADER_SIZE then return '' end
  local size = struct.unpack('<I4', bytes, FINISHED_TASK_SIZE_AT)
  return string.sub(bytes, FINISHED_HEADER_SIZE + 1, FINISHED_HEADER_SIZE + size)
end

-- Offset, from 0, of the last byte of a finished record that the generation of its task needs.
local FINISHED_PEEK = FINISHED_HEADER_SIZE + TASK_HEADER_SIZE - 1

local function finished_generation(bytes)
  if #bytes <= FINISHED_PEEK then return 0 end
  local $TASK_HEADER(generation) = struct.unpack(TASK_HEADER, bytes, FINISHED_HEADER_SIZE + 1)
  return generation
end
