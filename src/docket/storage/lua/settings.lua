-- Stores the declaration of a process's settings and lists all declarations
-- (docs/design/settings.md).
-- ARGV[2]: msgpack {declaration, name of the process, ms after which a declaration is forgotten}.
-- Returns: per declaration: the declaration, the name of the process that declared it last.
-- uses: keys
local declaration, process, lifetime = unpack(cmsgpack.unpack(ARGV[2]))
local now = real_ms()
call('HSET', SETTINGS, declaration, string.format('%.0f %s', now, process))
call('PEXPIRE', SETTINGS, lifetime)
local found, answer = call('HGETALL', SETTINGS), {}
for i = 1, #found, 2 do
  local since, name = string.match(found[i + 1], '^(%d+) (.*)$')
  if not since or now - number_in(since, 0) > lifetime then
    call('HDEL', SETTINGS, found[i])
  else
    answer[#answer + 1] = {found[i], name}
  end
end
return answer
