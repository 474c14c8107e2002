-- Stores a payload even if the server is full: the task that ends with it frees memory.
-- ARGV[2]: id of the payload. ARGV[3]: its bytes. ARGV[4]: time to live in ms.
-- Returns: 1.
-- uses: keys
permit_when_full()
call('SET', PAYLOADS .. ARGV[2], ARGV[3], 'PX', ARGV[4])
return 1
