-- Cancels tasks that the caller has seen, each as `cancel` does. A task that is another one by now,
-- or that runs although the caller wants waiting ones only, is skipped.
-- ARGV[2]: msgpack {ttl ms, running ones, too (0/1), list of {key, generation, submission}}.
-- Returns: per task: 0 skipped, 1 cancelled, 2 its worker got a cancel request.
-- uses: keys, records, cancels
local ttl, with_running, tasks = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local answer = {}
for i, wanted in ipairs(tasks) do
  local key, generation, submission = unpack(wanted)
  local bytes, run_bytes = call('HGET', TASKS, key), call('HGET', RUNNING, key)
  local task, run = bytes and unpack_task(bytes), run_bytes and unpack_run(run_bytes)
  answer[i] = 0
  if task and task.generation == generation and task.submission == submission and
    (run and with_running == 1 or not run and not is_unknown_location(task)) then
    answer[i] = cancel_task(key, task, bytes, run, ttl)
  end
end
return answer
