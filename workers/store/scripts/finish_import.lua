#!lua
-- Let an imported model be seen, with the calibration map that is current for it.
--
-- KEYS  1 models of the partition (T:m)   2 current maps of the partition (T:mc)
-- ARGV  1 tenant/model   2 the configuration that the writer has seen, byte for byte   3 the new one
--       4 the current map; '' for none
-- Reply {1} written; {0, configuration or false} another one is there.
--
-- One step, because a model is answered from as soon as it is seen, and then must be whole.

local found = redis.call('HGET', KEYS[1], ARGV[1])
if found ~= ARGV[2] then return {0, found} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
if ARGV[4] ~= '' then redis.call('HSET', KEYS[2], ARGV[1], ARGV[4]) end
return {1}
