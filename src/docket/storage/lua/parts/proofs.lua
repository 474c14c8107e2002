-- Proofs that a script sent a message (docs/design/proofs.md). codec/proofs.py computes the same; a
-- test compares the two.
-- uses: nothing
local SECRET_SIZE = 128
local NO_PROOF = string.rep(' ', 40)

-- The secret of the docket, or nil if there is none.
local function docket_secret()
  local secret = redis.pcall('GET', SECRET)
  if type(secret) == 'string' and #secret == SECRET_SIZE then return secret end
  return nil
end

local function proof(purpose, subject, body)
  local secret = docket_secret()
  if not secret then return NO_PROOF end
  local inner = redis.sha1hex(string.sub(secret, 1, 64) .. purpose .. ' ' .. #subject .. ' ' .. subject .. ' ' .. body)
  return redis.sha1hex(string.sub(secret, 65) .. inner)
end

-- The secret in force. If there is none, it is `fresh`, unless the server refuses the write.
local function secret_or(fresh)
  local secret = docket_secret()
  if secret or not fresh then return secret or false end
  local stored = redis.pcall('SET', SECRET, fresh)
  return not stored.err and fresh
end
