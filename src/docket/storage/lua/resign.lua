-- Notes that a worker stops, and takes its duty: it keeps its lease
-- while it drains, but does nothing for the fleet. If a duty is vacant,
-- others are told: those that were told before may all be stopping.
-- ARGV[2]: msgpack {worker id}.
-- Returns: 0.
-- uses: keys, fleet
local worker = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
if not call('ZSCORE', LEASES, worker) then return 0 end
call('SADD', STOPPING, worker)
if not give_up_duty(worker) then tell_of_vacancy(worker) end
return 0
