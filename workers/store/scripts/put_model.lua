#!lua flags=allow-oom
-- Write the configuration of a model unless it was changed meanwhile.
--
-- KEYS  1 models of the partition (T:m)
-- ARGV  1 tenant/model   2 the configuration that the writer read, byte for byte; '' for none   3 the new one
-- Reply {1} written; {0, configuration or false} the stored one differs.
--
-- One step, because it is a comparison and a write.
-- Allowed when memory is full: settings may free memory, as a shorter retention does.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if (found or '') ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {1}
