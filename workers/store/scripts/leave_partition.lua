#!lua flags=allow-oom
-- End the presence of a moved model in its former partition.
--
-- KEYS  1 models of the partition (T:m)   2 places (T:at)   3 models with returned cold days (T:cb)
--       4.. hashes that models share
-- ARGV  1 tenant/model   2 its configuration as the caller read it, byte for byte   3 the one that remains until the model's
--       data here are removed   4 the new place, as in T:at   5 G
--       then of each shared hash: the number of its fields that are the model's, and these
-- Reply {1} done, now or before; {0, configuration or false} the stored one differs.
--
-- One step: from it on, no reader finds the model here. What a reader that has found it before reads by its name stays, also the
-- names of its files. Allowed when memory is full: it frees memory.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found == ARGV[3] then return {1} end
if found ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[4])
redis.call('SREM', KEYS[3], ARGV[5])
local a = 6
for k = 4, #KEYS do
  for i = a + 1, a + tonumber(ARGV[a]) do redis.call('HDEL', KEYS[k], ARGV[i]) end
  a = a + 1 + tonumber(ARGV[a])
end
return {1}
