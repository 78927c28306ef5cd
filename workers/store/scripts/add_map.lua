#!lua
-- Freeze a calibration map as the next version of a model.
--
-- KEYS  1 models of the partition (T:m)   2 the model's map versions (T:mv:G)
-- ARGV  1 tenant/model   2 generation   3 identity of the fit   4 maximum of versions   5 the version   6 its summary
-- Reply {1, number} frozen; {2, number} the same fit was frozen before; {0} the model is gone; {3, number} the maximum is reached.
--
-- One step, so that a number is assigned once, a version is complete or absent, and nothing is written for a model that
-- was deleted meanwhile.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return {0} end
local known = redis.call('HGET', KEYS[2], 'f' .. ARGV[3])
if known then return {2, tonumber(known)} end
local last = tonumber(redis.call('HGET', KEYS[2], 'n') or '0')
if last >= tonumber(ARGV[4]) then return {3, last} end
local number = last + 1
redis.call('HSET', KEYS[2], 'n', number, 'v' .. number, ARGV[5], 's' .. number, ARGV[6], 'f' .. ARGV[3], number)
return {1, number}
