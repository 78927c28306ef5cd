#!lua
-- Archive a report of a model under the next number.
--
-- KEYS  1 models of the partition (T:m)   2 the model's archive (T:ra:G)
-- ARGV  1 tenant/model   2 generation   3 identity of the report   4 maximum of reports   5 maximum of bytes   6 bytes of this report
--       7 its summary   8 its page   9 its results
-- Reply {1, number} archived; {2, number} the same report was archived before; {0} the model is gone; {3, bytes} the archive is full.
--
-- One step, so that a number is assigned once, a report is complete or absent, and nothing is written for a model that was deleted
-- meanwhile.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return {0} end
local known = redis.call('HGET', KEYS[2], 'f' .. ARGV[3])
if known then return {2, tonumber(known)} end
local last = tonumber(redis.call('HGET', KEYS[2], 'n') or '0')
local bytes = tonumber(redis.call('HGET', KEYS[2], 'b') or '0')
if last >= tonumber(ARGV[4]) or bytes + tonumber(ARGV[6]) > tonumber(ARGV[5]) then return {3, bytes} end
local number = last + 1
redis.call('HSET', KEYS[2], 'n', number, 'f' .. ARGV[3], number, 's' .. number, ARGV[7], 'h' .. number, ARGV[8], 'r' .. number, ARGV[9])
redis.call('HINCRBY', KEYS[2], 'b', ARGV[6])
return {1, number}
