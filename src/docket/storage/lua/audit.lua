-- Writes down a change that somebody made (docs/design/web.md). The oldest entries make room.
-- ARGV[2]: msgpack {entry, most entries, ms to keep entries}.
-- Returns: the id of the entry.
-- uses: keys
local entry, most, age = unpack(cmsgpack.unpack(ARGV[2]))
permit_when_full()
local id = call('XADD', AUDIT, 'MAXLEN', '~', most, '*', 't', string.format('%.0f', server_ms()), 'e', entry)
call('XTRIM', AUDIT, 'MINID', '~', string.format('%.0f', math.max(real_ms() - age, 0)))
call('PEXPIRE', AUDIT, age)
return id
