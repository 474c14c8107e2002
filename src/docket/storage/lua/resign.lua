-- Takes the duty from a worker that stops: it keeps its lease while it drains, but does nothing for
-- the fleet.
-- ARGV[2]: msgpack {worker id}.
-- Returns: 0.
-- uses: keys, fleet
permit_when_full()
give_up_duty(unpack(cmsgpack.unpack(ARGV[2])))
return 0
