-- Begins to follow the strikes: the version of the rules, and the secret that proves messages.
-- ARGV[2]: msgpack {a fresh secret, to be used if the docket has none}.
-- Returns: the version (as text, false if there is none, -1 if the key does not hold rules), the
--   secret of the docket or false.
-- uses: proofs
local fresh = unpack(cmsgpack.unpack(ARGV[2]))
local version = redis.pcall('HGET', STRIKES, 'version')
if type(version) == 'table' then version = -1 end
return {version, secret_or(fresh)}
