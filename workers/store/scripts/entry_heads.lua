#!lua flags=no-writes
-- Read entries of a stream without their payloads.
--
-- KEYS  1 stream: dead letters (T:x), parked entries (T:pk) or batches (T:q)
-- ARGV  1 first id of the range   2 maximum number of entries
-- Reply per entry {id, bytes of names and values, bytes of the payload `b`, {name, value, ...} without `b` and the places `w`}.
--
-- One step per entry would be many round trips. One payload at a time is in the script's memory, and none in the caller's.

local heads, first = {}, ARGV[1]
for i = 1, tonumber(ARGV[2]) do
  local found = redis.call('XRANGE', KEYS[1], first, '+', 'COUNT', 1)[1]
  if not found then break end
  local short, bytes, payload = {}, 0, 0
  for j = 1, #found[2], 2 do
    local name, value = found[2][j], found[2][j + 1]
    bytes = bytes + #name + #value
    if name == 'b' then payload = #value end
    if name ~= 'b' and name ~= 'w' then
      short[#short + 1] = name
      short[#short + 1] = value
    end
  end
  heads[i] = {found[1], bytes, payload, short}
  first = '(' .. found[1]
end
return heads
