-- Deletes the entries of the history that are too old.
-- ARGV[2]: msgpack {how long letters are kept in ms, or 0}.
-- Returns: number of deleted entries.
-- uses: keys, history
local keep_ms = unpack(cmsgpack.unpack(ARGV[2]))
local now, deleted = real_ms(), 0
permit_when_full()
for stream, ms in pairs({[HISTORY_FAILURES] = failures_kept_ms(keep_ms), [HISTORY_SAMPLES] = SAMPLES_KEPT_MS}) do
  -- Somebody else may have written to the stream.
  local trimmed = redis.pcall('XTRIM', stream, 'MINID', string.format('%.0f', now - ms))
  if type(trimmed) == 'number' then deleted = deleted + trimmed end
end
return deleted
