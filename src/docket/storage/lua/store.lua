-- Stores a payload on a server that is full: the task that ends with it makes room.
-- ARGV[2]: id of the payload. ARGV[3]: its bytes. ARGV[4]: time to live in ms.
-- Returns: nothing of interest.
-- uses: keys
permit_when_full()
call('SET', PAYLOADS .. ARGV[2], ARGV[3], 'PX', ARGV[4])
return 1
