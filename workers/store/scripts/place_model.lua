#!lua
-- Record in which partition a new model will be, unless that is decided.
--
-- KEYS  1 places of the models whose home this is (T:at)   2 models of the home (T:m)
-- ARGV  1 tenant/model   2 the partition that the caller prefers   3 this partition
-- Reply the partition of the model: the one recorded before; the home, if the model is there without a record; else the
--       preferred one.
--
-- One step, so that concurrent requests for the same new model agree. A record without a model is left by a request that
-- failed; the next one uses it. The record outlives the model: a model that is made again returns to its partition.

local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return tonumber(known) end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return tonumber(ARGV[3]) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return tonumber(ARGV[2])
