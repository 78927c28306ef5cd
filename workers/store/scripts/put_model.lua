#!lua flags=allow-oom
-- Write the configuration of a model unless it was changed meanwhile; with its current calibration map at the end of an import.
--
-- KEYS  1 models of the partition (T:m)   2 current maps of the partition (T:mc)
-- ARGV  1 tenant/model   2 the configuration that the writer read, byte for byte; '' for none   3 the new one
--       4 the current map; '' for none
-- Reply {1} written; {0, configuration or false} the stored one differs.
--
-- One step, because it is a comparison and a write, and because a visible model is read and must be complete.
-- Allowed when memory is full: settings may free memory, as a shorter retention does.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if (found or '') ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[4]) end
return {1}
