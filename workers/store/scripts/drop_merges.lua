#!lua flags=allow-oom
-- Drop merged panes.
--
-- KEYS  1 sorted set of merged panes by time   2 hash of their bytes   3, 4 ... their hashes
-- ARGV  1, 2 ... their members of keys 1 and 2
-- Reply bytes of all merged panes that are left.
--
-- One step, so that bytes and content agree. Allowed when memory is full: it frees memory.

for i, member in ipairs(ARGV) do
  local held = tonumber(redis.call('HGET', KEYS[2], member) or '0')
  redis.call('UNLINK', KEYS[i + 2])
  redis.call('ZREM', KEYS[1], member)
  redis.call('HDEL', KEYS[2], member)
  redis.call('HINCRBY', KEYS[2], '', -held)
end
return tonumber(redis.call('HGET', KEYS[2], '') or '0')
