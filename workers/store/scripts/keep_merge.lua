#!lua
-- Store accumulators of merged panes, a cache that may be dropped at any time.
--
-- KEYS  1 hash of the merged panes (T:g:...)   2 sorted set of such hashes by time   3 hash of their bytes, `` for all together
-- ARGV  1 member of keys 2 and 3   2 time   3 state of the panes, the first bytes of every value   4, 5 ... fields and values
-- Reply bytes of all merged panes of the partition.
--
-- One step, so that bytes and content agree. Accumulators of another state of the panes are removed. A value names the state that it
-- is of, so a late writer can cost a repeated merge, and never a wrong result.

local freed, added = 0, 0
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  local value = redis.call('HGET', KEYS[1], field)
  if string.sub(value, 1, #ARGV[3]) ~= ARGV[3] then
    freed = freed + #value
    redis.call('HDEL', KEYS[1], field)
  end
end
for i = 4, #ARGV, 2 do
  freed = freed + redis.call('HSTRLEN', KEYS[1], ARGV[i])
  added = added + #ARGV[i + 1]
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('HINCRBY', KEYS[3], ARGV[1], added - freed)
return redis.call('HINCRBY', KEYS[3], '', added - freed)
