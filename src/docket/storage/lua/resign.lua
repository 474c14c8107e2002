-- A worker that stops gives up its duty, if it has one: it has a lease until it has drained, and
-- does nothing for the fleet.
-- ARGV[2]: msgpack {worker id}.
-- Returns: nothing of interest.
-- uses: keys, fleet
permit_when_full()
give_up_duty(unpack(cmsgpack.unpack(ARGV[2])))
return 0
