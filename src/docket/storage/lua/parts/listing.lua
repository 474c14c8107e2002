-- Reads pages of tasks (find_tasks.lua). A page has the cursor, the most tasks to read, a function
-- name and due times or false; the script gets its keys, positions and values, and where to go on.
-- uses: keys, entries

local function exact_number(value) return string.format('%.17g', value) end

local function scan_page(page, hash)
  local found = call('HSCAN', hash, page.cursor == '' and '0' or page.cursor, 'COUNT', page.most)
  page.following = found[1] == '0' and '' or found[1]
  for i = 1, #found[2], 2 do
    page.keys[#page.keys + 1] = found[2][i]
    page.values[#page.keys] = found[2][i + 1]
  end
end

local function read_page(page, stream)
  local found = redis.pcall('XRANGE', stream, page.cursor == '' and '-' or '(' .. page.cursor, '+', 'COUNT', page.most)
  if found.err then return end
  for i, entry in ipairs(found) do
    page.keys[i] = entry_key(entry[2]) or ''
    page.positions[i] = entry[1]
  end
  if #found == page.most then page.following = page.positions[#found] end
end
