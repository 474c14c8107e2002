-- What workers tell about themselves and their functions (docs/design/web.md).
-- uses: keys, fleet
local MOST_DECLARED, DECLARED_MS = 2000, 2678400000

-- Stores the declarations of functions: names and texts, one after the other.
local function declare_functions(declarations)
  local room = MOST_DECLARED - call('HLEN', DECLARED)
  for i = 1, #declarations, 2 do
    if room > 0 or call('HEXISTS', DECLARED, declarations[i]) == 1 then
      room = room - call('HSET', DECLARED, declarations[i], declarations[i + 1])
    end
  end
  call('PEXPIRE', DECLARED, DECLARED_MS)
end

-- A release before this one leaves the reports of workers that are gone.
local SPARE_REPORTS, REPORTS_AT_ONCE = 16, 500

local function forget_reports()
  if call('HLEN', WORKER_REPORTS) <= workers_with_lease() + SPARE_REPORTS then return end
  for _, worker in ipairs(call('HRANDFIELD', WORKER_REPORTS, REPORTS_AT_ONCE)) do
    if not call('ZSCORE', LEASES, worker) then call('HDEL', WORKER_REPORTS, worker) end
  end
end
