#!lua
-- Store the next version of something that a model has in numbers: a frozen calibration map, or an archived report.
--
-- KEYS  1 models of the partition (T:m)   2 the model's versions (T:mv:G) or archive (T:ra:G)
-- ARGV  1 tenant/model   2 generation   3 identity of the content   4 maximum of versions   5 maximum of bytes
--       6 bytes of this version; 0: they are not counted   7.. letter of a field, and its content
-- Reply {1, number} stored; {2, number} the same content was stored before; {0} the model is gone; {3, bytes} there is no room.
--
-- One step, so that a number is assigned once, a version is complete or absent, and nothing is written for a model that
-- was deleted meanwhile.

local config = redis.call('HGET', KEYS[1], ARGV[1])
if not config or cjson.decode(config)['generation'] ~= ARGV[2] then return {0} end
local known = redis.call('HGET', KEYS[2], 'f' .. ARGV[3])
if known then return {2, tonumber(known)} end
local number = tonumber(redis.call('HGET', KEYS[2], 'n') or '0') + 1
local bytes, added = tonumber(redis.call('HGET', KEYS[2], 'b') or '0'), tonumber(ARGV[6])
if number > tonumber(ARGV[4]) or bytes + added > tonumber(ARGV[5]) then return {3, bytes} end
redis.call('HSET', KEYS[2], 'n', number, 'f' .. ARGV[3], number)
for i = 7, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i] .. number, ARGV[i + 1]) end
if added > 0 then redis.call('HINCRBY', KEYS[2], 'b', added) end
return {1, number}
