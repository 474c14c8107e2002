-- Whether any task is ready or running, and when the next task is due.
-- No arguments.
-- Returns: server ms, number of ready or running tasks, due time of the next task or -1.
-- uses: keys
local head = call('ZRANGE', SCHEDULE, 0, 0, 'WITHSCORES')
local now = server_ms()
local busy = call('XLEN', STREAM) + call('XLEN', FRONT) + call('HLEN', RUNNING)
return {now, busy, head[2] or '-1'}
