#!lua flags=allow-oom
-- Have a partition no longer fill for a deleted model, and remove later what it has of it.
--
-- KEYS  1 models for which the partition fills (T:sm)   2 deleted generations of which something may be here (T:sg)
-- ARGV  1 tenant/model   2 the generation that was deleted
-- Reply 1 closed, 0 the partition fills for none of this name, or for another generation.
--
-- One step, because the next model of the name may be opened meanwhile: its configuration stays. Allowed when memory is full:
-- deletions free memory.

redis.call('SADD', KEYS[2], ARGV[1] .. '|' .. ARGV[2])
local found = redis.call('HGET', KEYS[1], ARGV[1])
if not found or not string.find(found, '"generation":"' .. ARGV[2] .. '"', 1, true) then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
