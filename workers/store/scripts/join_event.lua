#!lua
-- Take the other half of an inference, or leave one's own for it.
--
-- KEYS  1 the other half   2 the own half (T:ev:G|...)   3 bytes of halves by minute (T:en)
-- ARGV  1 the own half   2 seconds for which it waits   3 this minute   4 maximum of bytes that wait
-- Reply {1, the other half}; {0} left; {2} there is no room.
--
-- One step, because otherwise two halves that come at once would both be left.

local other = redis.call('GET', KEYS[1])
if other then return {1, other} end
if redis.call('EXISTS', KEYS[2]) == 1 then return {0} end
local n_bytes, minutes = 0, redis.call('HGETALL', KEYS[3])
for i = 1, #minutes, 2 do
  if tonumber(minutes[i]) < tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[3], minutes[i])
  else
    n_bytes = n_bytes + tonumber(minutes[i + 1])
  end
end
local added = #ARGV[1] + 2 * #KEYS[2] + 100
if n_bytes + added > tonumber(ARGV[4]) then return {2} end
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
local last = math.floor((tonumber(ARGV[3]) * 60 + 59 + tonumber(ARGV[2])) / 60)
redis.call('HINCRBY', KEYS[3], string.format('%d', last), added)
redis.call('EXPIRE', KEYS[3], tonumber(ARGV[2]) + 120)
return {0}
