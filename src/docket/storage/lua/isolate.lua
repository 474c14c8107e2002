-- Marks the run of a single suspect: no other body runs in its process, so its task is to blame if
-- the process dies. Or removes the mark, once the run has lasted so long that its worker may take
-- other work again.
-- ARGV[2]: msgpack {worker id, key, epoch, alone (1) or no longer alone (0)}.
-- Returns: 1 done, 0 lost.
-- uses: keys, records, suspects
local worker, key, epoch, is_alone = unpack(cmsgpack.unpack(ARGV[2]))
local run_bytes = call('HGET', RUNNING, key)
local run = run_bytes and unpack_run(run_bytes)
if not run or run.epoch ~= epoch or run.worker ~= worker then return 0 end
permit_when_full()
if has_flag(run, ALONE) ~= (is_alone == 1) then
  run.flags = run.flags + (is_alone == 1 and ALONE or -ALONE)
  call('HSET', RUNNING, key, pack_run(run))
end
if is_alone == 0 then leave_alone(worker, key) end
return 1
