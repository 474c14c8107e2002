-- One worker of the fleet leads: whoever asks first, for as long as it keeps asking.
-- KEYS[1]: who leads. ARGV[1]: worker id. ARGV[2]: for how many ms.
-- Returns: whether this worker leads.
local leader = redis.call('GET', KEYS[1])
if leader and leader ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
