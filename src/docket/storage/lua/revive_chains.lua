-- Lets workers start buried automatic tasks again, also if their letters are gone.
-- ARGV[2]: msgpack list of names.
-- Returns: number of chains that were buried.
-- uses: batches
return revive_chains(cmsgpack.unpack(ARGV[2]))
