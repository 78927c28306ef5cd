#!lua flags=allow-oom
-- Make a frozen version the current map of a model, unless another one was promoted meanwhile.
--
-- KEYS  1 models of the partition (T:m)   2 current maps of the partition (T:mc)   3 the model's map versions (T:mv:G)
--       4 stream (T:q)   5 bytes appended (T:in)
-- ARGV  1 tenant/model   2 generation   3 promotion that the writer read, 0 for none   4 number of the version
--       5 the new current map   6 record of the promotion   7 promotions to remember
--       8 bytes of the command to the alarm   9.. its fields and values
-- Reply {1, promotion} done; {0, promotion} the stored one differs; {-1} the model is gone; {-2} no such version.
--
-- One step, because it is a comparison and a write of three fields: a reader sees a complete promotion with its record.
-- The command that restarts the alarm's detectors under the map belongs to the same step. Otherwise a failure in between
-- would leave them evaluating one map by the evidence of another.
-- Allowed when memory is full: it replaces what is stored.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return {-1} end
local seen = tonumber(redis.call('HGET', KEYS[3], 'p') or '0')
if seen ~= tonumber(ARGV[3]) then return {0, seen} end
if redis.call('HEXISTS', KEYS[3], 'v' .. ARGV[4]) == 0 then return {-2} end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[5])
redis.call('HSET', KEYS[3], 'p', seen + 1, 'h' .. (seen + 1), ARGV[6])
redis.call('HDEL', KEYS[3], 'h' .. (seen + 1 - tonumber(ARGV[7])))
redis.call('INCRBY', KEYS[5], ARGV[8])
redis.call('XADD', KEYS[4], '*', unpack(ARGV, 9))
return {1, seen + 1}
