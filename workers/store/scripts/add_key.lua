#!lua
-- Store a key of a caller, unless its tenant has as many as it may have.
--
-- KEYS  1 keys of callers (ns:ak)
-- ARGV  1 id of the key   2 the key as JSON   3 `"tenant":"NAME"` as the JSON contains it   4 maximum of keys per tenant
-- Reply 1 stored, or stored before; 0 the tenant has the maximum.
--
-- One step, because concurrent requests would exceed a bound that is checked in an earlier step.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then return 1 end
local n = 0
for _, text in ipairs(redis.call('HVALS', KEYS[1])) do
  if string.find(text, ARGV[3], 1, true) then n = n + 1 end
end
if n >= tonumber(ARGV[4]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[1], '*', 1)
return 1
