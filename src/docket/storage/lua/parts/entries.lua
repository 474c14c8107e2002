-- The task key in a stream entry (docs/design/key-layout.md, Stream entries).
-- uses: nothing

-- The field of a short entry: this letter, and the beginning of the key. The value has the bytes of
-- the end.
local SHORT, SHORT_FIELD_SIZE = 'u', 10
local KEY_END, KEY_END_SIZE = '>I2I2I2I2I4', 12

local function is_short(name, value)
  return #name == SHORT_FIELD_SIZE and #value == KEY_END_SIZE and string.find(name, '^u[%da-f]+%-$')
end

local function printed_end(bytes)
  return string.format('%04x-%04x-%04x-%04x%08x', struct.unpack(KEY_END, bytes))
end

-- The digits of every byte. To print the end of a key takes the server about 9,000 instructions
-- (estimated), and 5,000 with this table, which has to be made first.
local MANY_KEYS = 4
local function digits_of_bytes()
  return {
    [0] = '00', '01', '02', '03', '04', '05', '06', '07', '08', '09', '0a', '0b', '0c', '0d', '0e', '0f',
    '10', '11', '12', '13', '14', '15', '16', '17', '18', '19', '1a', '1b', '1c', '1d', '1e', '1f',
    '20', '21', '22', '23', '24', '25', '26', '27', '28', '29', '2a', '2b', '2c', '2d', '2e', '2f',
    '30', '31', '32', '33', '34', '35', '36', '37', '38', '39', '3a', '3b', '3c', '3d', '3e', '3f',
    '40', '41', '42', '43', '44', '45', '46', '47', '48', '49', '4a', '4b', '4c', '4d', '4e', '4f',
    '50', '51', '52', '53', '54', '55', '56', '57', '58', '59', '5a', '5b', '5c', '5d', '5e', '5f',
    '60', '61', '62', '63', '64', '65', '66', '67', '68', '69', '6a', '6b', '6c', '6d', '6e', '6f',
    '70', '71', '72', '73', '74', '75', '76', '77', '78', '79', '7a', '7b', '7c', '7d', '7e', '7f',
    '80', '81', '82', '83', '84', '85', '86', '87', '88', '89', '8a', '8b', '8c', '8d', '8e', '8f',
    '90', '91', '92', '93', '94', '95', '96', '97', '98', '99', '9a', '9b', '9c', '9d', '9e', '9f',
    'a0', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6', 'a7', 'a8', 'a9', 'aa', 'ab', 'ac', 'ad', 'ae', 'af',
    'b0', 'b1', 'b2', 'b3', 'b4', 'b5', 'b6', 'b7', 'b8', 'b9', 'ba', 'bb', 'bc', 'bd', 'be', 'bf',
    'c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8', 'c9', 'ca', 'cb', 'cc', 'cd', 'ce', 'cf',
    'd0', 'd1', 'd2', 'd3', 'd4', 'd5', 'd6', 'd7', 'd8', 'd9', 'da', 'db', 'dc', 'dd', 'de', 'df',
    'e0', 'e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7', 'e8', 'e9', 'ea', 'eb', 'ec', 'ed', 'ee', 'ef',
    'f0', 'f1', 'f2', 'f3', 'f4', 'f5', 'f6', 'f7', 'f8', 'f9', 'fa', 'fb', 'fc', 'fd', 'fe', 'ff',
  }
end

-- The key, or false if docket has not written these fields.
-- twin of: add_entries (claims.lua)
local function entry_key(fields)
  local name, value = fields[1], fields[2]
  if name == 'k' then return value end
  return is_short(name, value) and string.sub(name, 2) .. printed_end(value)
end
